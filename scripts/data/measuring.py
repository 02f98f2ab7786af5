"""How large a text is, and which one it is."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from agg_fairseq.errors import UserError


@dataclass(frozen=True)
class Measured:
    """A file of text.

    Args:
        lines: how many.
        tokens: words, and an end of each line: how language models count.
        sha256, sha1: digests of the file, in hexadecimal.
    """

    lines: int
    tokens: int
    sha256: str
    sha1: str


def measure(path: Path) -> Measured:
    """Reads a file of text once.

    Raises:
        UserError: it is not in UTF-8.
    """
    lines = tokens = 0
    digests = (hashlib.sha256(), hashlib.sha1(usedforsecurity=False))
    with open(path, "rb") as file:
        for line in file:
            lines += 1
            tokens += len(_decoded(line, path, lines).split()) + 1
            for digest in digests:
                digest.update(line)
    return Measured(lines, tokens, *(digest.hexdigest() for digest in digests))


def _decoded(line: bytes, path: Path, number: int) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}, line {number}: found bytes that are not UTF-8; expected text in UTF-8") from error
