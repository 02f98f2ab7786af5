"""Byte-pair encoding learned on two languages together, by subword-nmt, and applied by fastBPE where that is installed.

Both libraries read the same merges in files of different forms (see `agg_fairseq.data.subwords.CODES`): subword-nmt a
line `#version: 0.2`, then two pieces a line; fastBPE no first line, and after the two pieces a count that it ignores.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from agg_fairseq.errors import UserError

from .text_files import read_lines

CACHED_WORDS = 1 << 20
"""Words whose pieces subword-nmt remembers; it would keep all that it ever saw."""


def count_words(paths: Iterable[Path]) -> Counter[str]:
    """How often each word is in texts of tokens separated by spaces. Only the different words are kept in memory."""
    counts: Counter[str] = Counter()
    for path in paths:
        for line in read_lines(path):
            counts.update(line.split())
    return counts


def learn(counts: Counter[str], merges: int, codes: Path) -> None:
    """Writes the file of codes, in the form of subword-nmt.

    Args:
        counts: of the words.
        merges: the largest number of codes; fewer where no pair of pieces is left that is there twice.
        codes: the file.

    Raises:
        UserError: there are no two letters to merge.
    """
    from subword_nmt.learn_bpe import learn_bpe

    if all(len(word) == 1 for word in counts):
        raise UserError("found no words of several letters in the training text; expected sentences")
    progress = sys.stderr if sys.stderr.isatty() else io.StringIO()  # several lines a second
    with open(codes, "w", encoding="utf-8", newline="\n") as file, contextlib.redirect_stderr(progress):
        learn_bpe((f"{word} {count}" for word, count in counts.items()), file, merges, is_dict=True)


def write_fastbpe(codes: Path, converted: Path) -> None:
    """Writes codes of subword-nmt in the form of fastBPE: no first line, a count (0: unknown), no code twice."""
    pairs = dict.fromkeys(line for line in read_lines(codes) if not line.startswith("#version:"))
    converted.write_text("".join(f"{pair} 0\n" for pair in pairs), encoding="utf-8")


def apply_fastbpe(converted: str, lines: list[str]) -> list[str]:
    """Cuts the words of lines of tokens into pieces, `@@` after each that does not end a word."""
    return _fastbpe(converted).apply(lines)


def apply_subword_nmt(codes: str, lines: list[str]) -> list[str]:
    """The same by subword-nmt, which needs no compiler."""
    bpe = _subword_nmt(codes)
    if len(bpe.cache) > CACHED_WORDS:
        bpe.cache.clear()
    return [bpe.segment(line) for line in lines]


@cache
def _fastbpe(converted: str) -> Any:
    import fastBPE

    with _without_messages():
        return fastBPE.fastBPE(converted)


@cache
def _subword_nmt(codes: str) -> Any:
    from subword_nmt.apply_bpe import BPE

    with open(codes, encoding="utf-8") as file:
        return BPE(file)


@contextlib.contextmanager
def _without_messages() -> Iterator[None]:
    """Keeps C++ from telling, in every process, which file it reads."""
    kept = os.dup(2)
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
