"""Downloads a file from the first mirror that has it: resumes after an interruption, and checks the digest.

The package pooch is not used because it starts an interrupted download from its first byte.
"""

from __future__ import annotations

import errno
import os
import urllib.request
from collections.abc import Sequence
from http.client import HTTPException
from pathlib import Path
from typing import BinaryIO

from agg_fairseq.errors import UserError, first_line

from .files import lock, wrong_digest

AGENT = "Mozilla/5.0 (X11; Linux x86_64) agg-fairseq"  # some servers refuse clients that do not look like a browser
TIMEOUT_SECONDS = 30


class NoMirror(UserError):
    """No mirror has the file, or none can be reached."""


def fetch(target: Path, mirrors: Sequence[str], digests: Sequence[str] = ()) -> Path:
    """Downloads a file from the first of its mirrors (URLs) that has it, unless it exists; returns its path, `target`.

    The file has to have one of the digests, if any are given, also if it exists. A second process that wants it waits
    for the first. What has arrived is in `.NAME.partial` beside the target, where the next call, or the next mirror,
    goes on.

    Raises:
        NoMirror: with the reason for each mirror.
        UserError: the file that is there has another digest.
    """
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(f".{target.name}.partial")
        with open(partial, "ab") as file:
            lock(file, f"another download of {target.name}")
            if not target.exists():
                failures: list[str] = []
                for url in mirrors:
                    failure = _failure(url, file, digests)
                    if failure is None:
                        partial.replace(target)
                        return target
                    failures.append(f"{url}: {failure}")
                reasons = "; ".join(failures)
                raise NoMirror(f"could not download {target.name} ({reasons}); run it again, or put it at {target}")
    if wrong := wrong_digest(target, digests):
        raise UserError(f"{target}: {wrong}; remove the file and run it again")
    return target


def _failure(url: str, file: BinaryIO, digests: Sequence[str]) -> str | None:
    """Downloads from one mirror, again and again while bytes come; returns why that did not succeed."""
    while True:
        before = _size(file)
        try:
            _receive(url, file)
        except (OSError, HTTPException) as error:
            if getattr(error, "errno", None) == errno.ENOSPC:
                raise
            if _size(file) > before:
                continue
            return first_line(error)
        failure = wrong_digest(Path(file.name), digests)
        if failure is None:
            return None
        file.truncate(0)
        if not before:  # otherwise of two versions of the file, perhaps: once more, from its first byte
            return failure


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
