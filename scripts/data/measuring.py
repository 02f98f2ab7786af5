"""How large a text is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from agg_fairseq.errors import UserError


@dataclass(frozen=True)
class Measured:
    """A file of text.

    Args:
        lines: how many.
        tokens: words, and an end of each line: how language models count.
    """

    lines: int
    tokens: int


def measure(path: Path) -> Measured:
    """Reads a file of text once.

    Raises:
        UserError: it is not in UTF-8.
    """
    lines = tokens = 0
    with open(path, "rb") as file:
        for line in file:
            lines += 1
            tokens += len(_decoded(line, path, lines).split()) + 1
    return Measured(lines, tokens)


def lines(path: Path) -> int:
    """How many lines a file has."""
    with open(path, "rb") as file:
        return sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(1 << 20), b""))


def _decoded(line: bytes, path: Path, number: int) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}, line {number}: found bytes that are not UTF-8; expected text in UTF-8") from error
