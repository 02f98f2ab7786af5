"""Downloads a file from the first mirror that has it: resumes after an interruption, and checks the digest.

The package pooch is not used because it starts an interrupted download from its first byte.
"""

from __future__ import annotations

import errno
import os
import time
import urllib.request
from collections.abc import Sequence
from http.client import HTTPException
from pathlib import Path
from typing import BinaryIO

from agg_fairseq.errors import UserError, first_line

from .files import Check, lock

AGENT = "Mozilla/5.0 (X11; Linux x86_64) agg-fairseq"  # some servers refuse clients that do not look like a browser
TIMEOUT_SECONDS = 30
ATTEMPTS = 5  # in a row that bring nothing, after which a mirror is given up
BUSY = (429, 500, 502, 503, 504)  # answers after which the same request may succeed


class NoMirror(UserError):
    """No mirror has the file, or none can be reached."""


def fetch(target: Path, mirrors: Sequence[str], check: Check) -> Path:
    """Downloads a file from the first of its mirrors (URLs) that has it, unless it exists; returns its path, `target`.

    The file has to pass the check, also if it exists. A second process that wants it waits for the first. What has
    arrived is in `.NAME.partial` beside the target, where the next call, or the next mirror, goes on.

    Raises:
        NoMirror: with the reason for each mirror.
        UserError: the file that is there does not pass the check.
    """
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(f".{target.name}.partial")
        with open(partial, "ab") as file:
            lock(file, f"another download of {target.name}")
            if not target.exists():
                failures: list[str] = []
                if not any(_fetched(url, file, partial, check, failures) for url in mirrors):
                    raise NoMirror(
                        f"could not download {target.name} ({'; '.join(failures)}); see to the network and run it "
                        f"again, or put the file there by hand, as {target}"
                    )
                partial.replace(target)
                return target
    if wrong := check(target):
        raise UserError(f"{target}: {wrong}; remove the file and run it again")
    return target


def _fetched(url: str, file: BinaryIO, partial: Path, check: Check, failures: list[str]) -> bool:
    """Downloads from one mirror, with retries; False, and the reason in `failures`, if it does not succeed."""
    fruitless = 0
    while True:
        before = _size(file)
        try:
            _receive(url, file)
        except (OSError, HTTPException) as error:
            failure, code = first_line(error), getattr(error, "code", None)
            if getattr(error, "errno", None) == errno.ENOSPC:
                raise
            fruitless = 0 if _size(file) > before else fruitless + 1
            may_come = code in BUSY or (code is None and _size(file) > 0)  # it has the file
        else:
            failure = check(partial)
            if failure is None:
                return True
            file.truncate(0)
            may_come = before > 0  # of two versions of the file, perhaps: once more, from its first byte
        if not may_come or fruitless == ATTEMPTS:
            failures.append(f"{url}: {failure}")
            return False
        time.sleep(2**fruitless)


def _receive(url: str, file: BinaryIO) -> None:
    """Appends what is missing of a file; overwrites it if the server sends all of it."""
    from tqdm import tqdm

    offset = _size(file)
    headers = {"User-Agent": AGENT, **({"Range": f"bytes={offset}-"} if offset else {})}
    try:
        response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT_SECONDS)
    except OSError as error:
        if getattr(error, "code", None) == 416:  # nothing is left to come; the check decides
            return
        raise
    with response:
        if response.status != 206:
            file.truncate(0)
        length, offset = response.headers.get("Content-Length"), _size(file)
        total = None if length is None else offset + int(length)
        with tqdm(total=total, initial=offset, unit="B", unit_scale=True, disable=None) as bar:
            while chunk := response.read1(1 << 18):  # what has arrived; `read` would lose it if the rest does not come
                file.write(chunk)
                bar.update(len(chunk))
    if total not in (None, _size(file)):
        raise ConnectionError(f"the connection ended after {_size(file):,} of {total:,} bytes")


def _size(file: BinaryIO) -> int:
    file.flush()
    return os.fstat(file.fileno()).st_size
