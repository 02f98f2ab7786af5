"""Digests of files, and whether a file is the one that was published."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

ALGORITHMS = {32: "md5", 40: "sha1", 64: "sha256"}
"""Of hashlib, by the number of hexadecimal digits of their digests."""

Check = Callable[[Path], str | None]
"""Returns what is wrong with a file, as "found …; expected …"; None if nothing is."""


def digest(path: Path, algorithm: str = "sha256") -> str:
    """The digest of a file in hexadecimal."""
    found = hashlib.new(algorithm, usedforsecurity=False)
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            found.update(chunk)
    return found.hexdigest()


def published(*digests: str) -> Check:
    """A check that a file has one of the digests (MD5, SHA-1, SHA-256) that were published of its versions."""

    def wrong(path: Path) -> str | None:
        found = [digest(path, ALGORITHMS[len(one)]) for one in digests]
        if any(one == own for one, own in zip(digests, found, strict=True)):
            return None
        return f"found the digest {' or '.join(dict.fromkeys(found))}; expected {' or '.join(digests)}"

    return wrong
