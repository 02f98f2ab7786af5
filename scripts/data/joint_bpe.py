"""Byte-pair encoding learned on two languages together, by subword-nmt."""

from __future__ import annotations

import contextlib
import io
import sys
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from agg_fairseq.errors import UserError

from .files import read_lines

CACHED_WORDS = 1 << 20  # words whose pieces subword-nmt remembers; it would keep all that it ever saw


def learn(paths: Iterable[Path], merges: int, codes: Path) -> None:
    """Learns merges of letters on texts of tokens that are separated by spaces, and writes the file of codes.

    There are fewer merges than asked for where no pair of pieces is left that is there twice.
    """
    from subword_nmt.learn_bpe import learn_bpe

    counts: Counter[str] = Counter()  # learn_bpe would read texts into memory
    for path in paths:
        for line in read_lines(path):
            counts.update(line.split())
    if all(len(word) == 1 for word in counts):
        raise UserError("found no words of several letters in the training text; expected sentences")
    progress = sys.stderr if sys.stderr.isatty() else io.StringIO()  # several lines a second
    with open(codes, "w", encoding="utf-8", newline="\n") as file, contextlib.redirect_stderr(progress):
        learn_bpe((f"{word} {count}" for word, count in counts.items()), file, merges, is_dict=True)


def encode(codes: Path, lines: Iterable[str]) -> list[str]:
    """Cuts the words of lines of tokens into pieces, `@@` after each that does not end a word."""
    bpe = _codes(codes)
    if len(bpe.cache) > CACHED_WORDS:
        bpe.cache.clear()
    return [bpe.segment(line) for line in lines]


@cache
def _codes(codes: Path) -> Any:
    """Read once in each process."""
    from subword_nmt.apply_bpe import BPE

    with open(codes, encoding="utf-8") as file:
        return BPE(file)
