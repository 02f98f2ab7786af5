"""Downloads a file from the first mirror that has it: resumed after a break, checked, whole or not at all."""

from __future__ import annotations

import email.utils
import hashlib
import http.client
import os
import shutil
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any, BinaryIO

from agg_fairseq.errors import UserError, first_line

from .locks import lock

AGENT = "Mozilla/5.0 (X11; Linux x86_64) agg-fairseq"
"""Some servers refuse clients that do not look like a browser."""
TIMEOUT = 30
"""Seconds without an answer after which a mirror is given up."""
ATTEMPTS = 5
"""Number of attempts in a row that bring no byte, after which a mirror that breaks connections is given up."""
PAUSE = 1.0
"""Seconds before another attempt; doubled after each that brought nothing."""
LONGEST_WAIT = 300
"""Seconds that a server may ask to wait for; a mirror that asks for more is given up."""
TEMPORARY = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE)
"""Answers after which the same request may succeed."""
CHUNK = 1 << 18
DIGESTS = {32: "md5", 40: "sha1", 64: "sha256"}
"""Algorithms of hashlib by the number of hexadecimal digits of their digests."""

Check = Callable[[Path], str | None]
"""Returns what is wrong with a file, as "found …; expected …"; None if nothing is."""


class NoMirror(UserError):
    """No mirror has the file, or none can be reached."""


class _Refused(Exception):
    """A mirror does not answer, or does not have the file."""


class _Broken(Exception):
    """A download ended early, and another attempt may succeed, after `wait` seconds if the server asked for that."""

    def __init__(self, reason: str, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.wait = wait


def digest(path: Path, algorithm: str) -> str:
    """The digest of a file in hexadecimal, by an algorithm of hashlib such as `md5`."""
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with open(path, "rb") as file:
        for chunk in iter(lambda: file.read(1 << 20), b""):
            digest.update(chunk)
    return digest.hexdigest()


def sha256(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    return digest(path, "sha256")


def expected(*published: str) -> Check:
    """A check that a file is one of those that were published.

    Args:
        published: MD5, SHA-1 or SHA-256 of each, in hexadecimal.
    """
    algorithms = [DIGESTS[len(one)] for one in published]

    def label(algorithm: str) -> str:
        return algorithm.upper().replace("SHA", "SHA-")

    def wrong(path: Path) -> str | None:
        found = {algorithm: digest(path, algorithm) for algorithm in dict.fromkeys(algorithms)}
        if any(found[algorithm] == one for algorithm, one in zip(algorithms, published, strict=True)):
            return None
        listed = ", ".join(f"{label(algorithm)} {one}" for algorithm, one in found.items())
        if len(published) == 1:
            return f"found the {listed}; expected {published[0]}"
        wanted = " or ".join(f"{label(algorithm)} {one}" for algorithm, one in zip(algorithms, published, strict=True))
        return f"found the {listed}; expected {wanted}"

    return wrong


def fetch(target: Path, mirrors: Sequence[str], check: Check) -> Path:
    """Downloads a file unless it exists, continuing where an earlier call was interrupted.

    What has arrived so far is in the folder `.NAME.partial` beside the target, one file per mirror. A second process
    waits for the first.

    Args:
        target: where the file goes.
        mirrors: URLs (http, https, file) of the same file, tried in this order.
        check: a file has to pass it, from a mirror or already there.

    Returns:
        The target.

    Raises:
        NoMirror: with the reason for each mirror.
        UserError: the target cannot be written, or the file that is there does not pass the check.
    """
    if _is_there(target, check):
        return target
    try:
        _fetch(target, mirrors, check)
    except OSError as error:
        raise UserError(
            f"cannot write {target}: {error.strerror or error}; make room or choose another folder, and run the same "
            "command again: it goes on where it stopped"
        ) from error
    return target


def _is_there(target: Path, check: Check) -> bool:
    if not target.exists():
        return False
    if wrong := check(target):
        raise UserError(f"{target}: {wrong}; remove the file and run it again")
    return True


def _fetch(target: Path, mirrors: Sequence[str], check: Check) -> None:
    folder = target.with_name(f".{target.name}.partial")
    folder.mkdir(parents=True, exist_ok=True)
    failures = []
    with open(folder / "lock", "w", encoding="utf-8") as locked:
        lock(locked, f"another download of {target.name}")
        if _is_there(target, check):  # another process was faster
            return
        for url in mirrors:
            partial = folder / partial_name(url)
            try:
                with open(partial, "ab") as file:
                    _download(url, file, target.name, check)
            except (_Broken, _Refused) as error:
                failures.append(f"{url}: {error}")
                continue
            if wrong := check(partial):
                partial.unlink()
                failures.append(f"{url}: sent another file: {wrong}")
                continue
            os.replace(partial, target)
            shutil.rmtree(folder)
            return
    raise NoMirror(
        f"could not download {target.name} ({'; '.join(failures)}); see to the network and run it again, or put the "
        f"file there by hand, as {target}"
    )


def partial_name(url: str) -> str:
    """Name of the file with what has arrived from a mirror so far."""
    return hashlib.sha256(url.encode()).hexdigest()[:16]


def _download(url: str, file: BinaryIO, name: str, check: Check) -> None:
    """Downloads from one mirror, trying again as long as the attempts bring something.

    Raises:
        _Refused: the mirror does not have the file.
        _Broken: the last attempts brought nothing.
    """
    furthest, fruitless = _size(file), 0
    while True:
        try:
            response = _request(url, file, check)
            if response is None:
                return
            with response:
                return _receive(response, file, name)
        except _Broken as broken:
            fruitless = 0 if _size(file) > furthest else fruitless + 1
            furthest = max(furthest, _size(file))
            if fruitless == ATTEMPTS:
                raise
            if broken.wait:
                print(f"download: {name}: {broken}; trying again in {broken.wait:,.0f} s", file=sys.stderr)
            time.sleep(max(PAUSE * 2**fruitless, broken.wait))


def _request(url: str, file: BinaryIO, check: Check) -> Any:
    """Asks for the bytes that are missing; the mirror sends all of them if its file was changed in the meantime.

    Returns:
        The response; None if the file is whole already.
    """
    headers = {"User-Agent": AGENT}
    if _size(file) and _tag(file).exists():
        headers |= {"Range": f"bytes={_size(file)}-", "If-Range": _tag(file).read_text(encoding="latin-1")}
    try:
        return urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT)
    except (OSError, http.client.HTTPException) as error:
        code = getattr(error, "code", None)
        if code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:  # the mirror's file has no more bytes than ours
            if check(Path(file.name)) is None:
                return None
            file.truncate(0)
            raise _Broken(_reason(error)) from error
        if code in TEMPORARY:
            wait = _retry_after(error)
            if wait > LONGEST_WAIT:
                raise _Refused(f"{_reason(error)}, asks to wait {wait:,.0f} s") from error
            raise _Broken(_reason(error), wait) from error
        if _size(file) and (code is None or code >= HTTPStatus.INTERNAL_SERVER_ERROR):  # it had the file
            raise _Broken(_reason(error)) from error
        raise _Refused(_reason(error)) from error


def _retry_after(error: Any) -> float:
    """Seconds that a server asks to wait, in its header Retry-After: a number, or a date (RFC 9110, Sec. 10.2.3)."""
    asked = error.headers.get("Retry-After", "").strip()
    if asked.isdecimal():
        return float(asked)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(asked).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return 0.0


def _receive(response: Any, file: BinaryIO, name: str) -> None:
    """Appends a response to the file, or overwrites the file if the response does not continue it."""
    from tqdm import tqdm

    offset = _size(file)
    if response.status != HTTPStatus.PARTIAL_CONTENT:
        offset = 0
        file.truncate(0)
        # Remember which version of the file this is. Only a strong tag (one without W/) vouches for every byte.
        etag = response.headers.get("ETag", "")
        tag = etag if etag and not etag.startswith("W/") else response.headers.get("Last-Modified", "")
        if tag:
            _tag(file).write_text(tag, encoding="latin-1")
        else:
            _tag(file).unlink(missing_ok=True)
    elif not response.headers.get("Content-Range", "").startswith(f"bytes {offset}-"):
        file.truncate(0)
        raise _Broken(f"sent {response.headers.get('Content-Range')} where the bytes from {offset} were asked for")
    left = response.headers.get("Content-Length")
    length = None if left is None else offset + int(left)
    with tqdm(total=length, initial=offset, unit="B", unit_scale=True, desc=name, disable=None) as bar:
        while True:
            try:
                chunk = response.read1(CHUNK)  # what has arrived; `read` would lose it if the rest does not come
            except (OSError, http.client.HTTPException) as error:
                raise _Broken(f"the connection broke ({_reason(error)})") from error
            if not chunk:
                break
            file.write(chunk)
            bar.update(len(chunk))
    if length is not None and _size(file) != length:
        raise _Broken(f"the connection ended after {_size(file):,} of {length:,} bytes")


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
