"""Downloading a file from the first mirror that has it: resumed after a break, checked, whole or not at all."""

from __future__ import annotations

import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any, BinaryIO

from tqdm import tqdm

from agg_fairseq.errors import UserError, first_line

from .locks import lock
from .stages import sha256 as sha256_of

AGENT = "Mozilla/5.0 (X11; Linux x86_64) agg-fairseq"
"""Some servers turn away all that does not look like a browser."""
TIMEOUT = 30
"""Seconds without an answer after which a mirror is given up."""
ATTEMPTS = 5
"""At each mirror, where the connection breaks in the middle."""
CHUNK = 1 << 18


class NoMirror(UserError):
    """No mirror has the file, or none can be reached."""


class _Refused(Exception):
    """A mirror that does not answer, or does not have the file."""


class _Broken(Exception):
    """A download that ended early: worth another attempt."""


def fetch(target: Path, mirrors: Sequence[str], *, sha256: str | None = None) -> Path:
    """Downloads a file unless it is there, going on where an earlier call was interrupted.

    What has arrived so far is in `.NAME.partial` beside the target. A second process waits for the first.

    Args:
        target: where the file goes.
        mirrors: URLs (http, https, file) of the same file, tried in this order.
        sha256: of the file, in hexadecimal; where it is not known, any file will do.

    Returns:
        The target.

    Raises:
        NoMirror: with the reason of each.
        UserError: it cannot be written; or the file that is there already has another SHA-256.
    """
    if not _is_there(target, sha256):
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            _fetch(target, mirrors, sha256)
        except OSError as error:
            raise UserError(
                f"cannot write {target}: {error.strerror or error}; make room or choose another folder, and run it "
                "again: it goes on where it stopped"
            ) from error
    return target


def _fetch(target: Path, mirrors: Sequence[str], sha256: str | None) -> None:
    partial = target.with_name(f".{target.name}.partial")
    failures = []
    with open(partial, "ab") as file:
        lock(file, f"another download of {target.name}")
        if _is_there(target, sha256):  # another process was faster
            return
        for url in mirrors:
            failure = _try(url, file, sha256)
            if failure is None:
                os.replace(partial, target)
                _tag(file).unlink(missing_ok=True)
                return
            failures.append(f"{url}: {failure}")
    raise NoMirror(
        f"could not download {target.name} ({'; '.join(failures)}); see to the network and run it again, or put the "
        f"file there by hand, as {target}"
    )


def _is_there(target: Path, sha256: str | None) -> bool:
    if not target.exists():
        return False
    if sha256 is not None and (found := sha256_of(target)) != sha256:
        raise UserError(f"{target}: found the SHA-256 {found}; expected {sha256}; remove the file and run it again")
    return True


def _try(url: str, file: BinaryIO, sha256: str | None) -> str | None:
    """Downloads from one mirror. Returns why it failed, if it did."""
    broken = None
    for _ in range(ATTEMPTS):
        try:
            with _open(url, file) as response:
                _receive(response, file)
            return _wrong(file, sha256)
        except _Broken as error:
            broken = str(error)
        except _Refused as error:
            return str(error)
    return broken


def _open(url: str, file: BinaryIO) -> Any:
    """Asks for what is missing: all of it, where the file was changed meanwhile or is another mirror's."""
    headers = {"User-Agent": AGENT}
    if _size(file) and _tag(file).exists():
        headers |= {"Range": f"bytes={_size(file)}-", "If-Range": _tag(file).read_text(encoding="latin-1")}
    try:
        return urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT)
    except (OSError, http.client.HTTPException) as error:
        if getattr(error, "code", None) == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            file.truncate(0)
            raise _Broken(_reason(error)) from error
        raise _Refused(_reason(error)) from error


def _receive(response: Any, file: BinaryIO) -> None:
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
    with tqdm(total=expected, initial=offset, unit="B", unit_scale=True, desc=_name(file), disable=None) as bar:
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


def _wrong(file: BinaryIO, sha256: str | None) -> str | None:
    """What is wrong with a complete file, if anything; it is emptied then."""
    file.flush()
    if sha256 is None or (found := sha256_of(Path(file.name))) == sha256:
        return None
    file.truncate(0)
    return f"sent a file with the SHA-256 {found}, expected {sha256}"


def _keep_tag(file: BinaryIO, etag: str, modified: str) -> None:
    """Notes which version of which server's file this is; only a strong tag vouches for every byte."""
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


def _name(file: BinaryIO) -> str:
    return Path(file.name).name.removeprefix(".").removesuffix(".partial")


def _reason(error: Exception) -> str:
    """Why a server did not answer, in a few words."""
    if isinstance(error, urllib.error.HTTPError):
        return f"HTTP {error.code} {error.reason}"
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if not isinstance(cause, Exception):
        return str(cause)
    return getattr(cause, "strerror", None) or first_line(cause)
