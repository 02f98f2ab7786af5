"""Which file it is, by its digest."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

Check = Callable[[Path], str | None]
"""Says what is wrong with a file: what was found and what was expected; None where it is right."""


def digest(path: Path, algorithm: str) -> str:
    """The digest of a file, in hexadecimal.

    Args:
        path: the file.
        algorithm: by its name in hashlib.
    """
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with open(path, "rb") as file:
        for chunk in iter(lambda: file.read(1 << 20), b""):
            digest.update(chunk)
    return digest.hexdigest()


def sha256(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    return digest(path, "sha256")


def expected(algorithm: str, published: str) -> Check:
    """A check that a file is the published one.

    Args:
        algorithm: by its name in hashlib.
        published: its digest, in hexadecimal.
    """

    def wrong(path: Path) -> str | None:
        found = digest(path, algorithm)
        name = algorithm.upper().replace("SHA", "SHA-")
        return None if found == published else f"found the {name} {found}; expected {published}"

    return wrong
