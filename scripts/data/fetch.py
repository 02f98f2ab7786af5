"""Downloading a file from the first mirror that has it: resumed after a break, checked, whole or not at all."""

from __future__ import annotations

import hashlib
import http.client
import os
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any, BinaryIO

from tqdm import tqdm

from agg_fairseq.errors import UserError, first_line

from .digests import Check
from .locks import lock

AGENT = "Mozilla/5.0 (X11; Linux x86_64) agg-fairseq"
"""Some servers turn away all that does not look like a browser."""
TIMEOUT = 30
"""Seconds without an answer after which a mirror is given up."""
ATTEMPTS = 5
"""One after another without a byte more, after which a mirror that breaks connections is given up."""
PAUSE = 1.0
"""Seconds before another attempt; doubled after each that brought nothing."""
CHUNK = 1 << 18


class NoMirror(UserError):
    """No mirror has the file, or none can be reached."""


class _Refused(Exception):
    """A mirror that does not answer, or does not have the file."""


class _Broken(Exception):
    """A download that ended early: worth another attempt."""


def fetch(target: Path, mirrors: Sequence[str], check: Check) -> Path:
    """Downloads a file unless it is there, going on where an earlier call was interrupted.

    What has arrived so far is in the folder `.NAME.partial` beside the target, of each mirror by itself. A second
    process waits for the first.

    Args:
        target: where the file goes.
        mirrors: URLs (http, https, file) of the same file, tried in this order.
        check: what a mirror sends has to pass it.

    Returns:
        The target.

    Raises:
        NoMirror: with the reason of each.
        UserError: it cannot be written; or the file that is there already does not pass.
    """
    if not _is_there(target, check):
        try:
            _fetch(target, mirrors, check)
        except OSError as error:
            raise UserError(
                f"cannot write {target}: {error.strerror or error}; make room or choose another folder, and run it "
                "again: it goes on where it stopped"
            ) from error
    return target


def _fetch(target: Path, mirrors: Sequence[str], check: Check) -> None:
    folder = target.with_name(f".{target.name}.partial")
    folder.mkdir(parents=True, exist_ok=True)
    failures = []
    with open(folder / "lock", "w", encoding="utf-8") as locked:
        lock(locked, f"another download of {target.name}")
        if _is_there(target, check):  # another process was faster
            return
        for url in mirrors:
            partial = folder / _key(url)
            failure = _try(url, partial, target.name, check)
            if failure is None:
                os.replace(partial, target)
                shutil.rmtree(folder)
                return
            failures.append(f"{url}: {failure}")
    raise NoMirror(
        f"could not download {target.name} ({'; '.join(failures)}); see to the network and run it again, or put the "
        f"file there by hand, as {target}"
    )


def _key(url: str) -> str:
    """A name for what has arrived from a mirror."""
    return hashlib.sha256(url.encode()).hexdigest()[:16]


def _is_there(target: Path, check: Check) -> bool:
    if not target.exists():
        return False
    if wrong := check(target):
        raise UserError(f"{target}: {wrong}; remove the file and run it again")
    return True


def _try(url: str, partial: Path, name: str, check: Check) -> str | None:
    """Downloads from one mirror. Returns why it failed, if it did."""
    try:
        with open(partial, "ab") as file:
            _insist(url, file, name)
    except (_Broken, _Refused) as error:
        return str(error)
    if wrong := check(partial):
        partial.unlink()
        return f"sent another file: {wrong}"
    return None


def _insist(url: str, file: BinaryIO, name: str) -> None:
    """Downloads from one mirror, in as many attempts as bring something each.

    Raises:
        _Refused: it does not have the file.
        _Broken: the last attempts brought nothing.
    """
    furthest, fruitless = _size(file), 0
    while True:
        try:
            with _open(url, file) as response:
                return _receive(response, file, name)
        except _Broken:
            fruitless = 0 if _size(file) > furthest else fruitless + 1
            furthest = max(furthest, _size(file))
            if fruitless == ATTEMPTS:
                raise
            time.sleep(PAUSE * 2**fruitless)


def _open(url: str, file: BinaryIO) -> Any:
    """Asks for what is missing: all of it, where the file was changed meanwhile."""
    headers = {"User-Agent": AGENT}
    if _size(file) and _tag(file).exists():
        headers |= {"Range": f"bytes={_size(file)}-", "If-Range": _tag(file).read_text(encoding="latin-1")}
    try:
        return urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT)
    except (OSError, http.client.HTTPException) as error:
        code = getattr(error, "code", HTTPStatus.INTERNAL_SERVER_ERROR)
        if code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            file.truncate(0)
            raise _Broken(_reason(error)) from error
        if _size(file) and code >= HTTPStatus.INTERNAL_SERVER_ERROR:  # it had the file, and may come back
            raise _Broken(_reason(error)) from error
        raise _Refused(_reason(error)) from error


def _receive(response: Any, file: BinaryIO, name: str) -> None:
    """Appends a response to the file, or writes it over the file where it is not a continuation."""
    offset = _size(file)
    if response.status != HTTPStatus.PARTIAL_CONTENT:
        offset = 0
        file.truncate(0)
        _keep_tag(file, response.headers.get("ETag", ""), response.headers.get("Last-Modified", ""))
    elif not response.headers.get("Content-Range", "").startswith(f"bytes {offset}-"):
        file.truncate(0)
        raise _Broken(f"sent {response.headers.get('Content-Range')} where the bytes from {offset} were asked for")
    left = response.headers.get("Content-Length")
    expected = None if left is None else offset + int(left)
    with tqdm(total=expected, initial=offset, unit="B", unit_scale=True, desc=name, disable=None) as bar:
        while chunk := _read(response):
            file.write(chunk)
            bar.update(len(chunk))
    if expected is not None and _size(file) != expected:
        raise _Broken(f"the connection ended after {_size(file):,} of {expected:,} bytes")


def _read(response: Any) -> bytes:
    try:
        return response.read(CHUNK)
    except (OSError, http.client.HTTPException) as error:
        raise _Broken(f"the connection broke ({_reason(error)})") from error


def _keep_tag(file: BinaryIO, etag: str, modified: str) -> None:
    """Notes which version of the file this is; only a strong tag vouches for every byte."""
    tag = etag if etag and not etag.startswith("W/") else modified
    if tag:
        _tag(file).write_text(tag, encoding="latin-1")
    else:
        _tag(file).unlink(missing_ok=True)


def _tag(file: BinaryIO) -> Path:
    return Path(f"{file.name}.tag")


def _size(file: BinaryIO) -> int:
    file.flush()
    return os.fstat(file.fileno()).st_size


def _reason(error: Exception) -> str:
    """Why a server did not answer, in a few words."""
    if isinstance(error, urllib.error.HTTPError):
        return f"HTTP {error.code} {error.reason}"
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if not isinstance(cause, Exception):
        return str(cause)
    return getattr(cause, "strerror", None) or first_line(cause)
