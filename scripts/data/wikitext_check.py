"""Whether a text is the WikiText corpus that it is said to be."""

from __future__ import annotations

import sys
from pathlib import Path

from agg_fairseq.errors import UserError

from .binarise import SPLITS
from .measuring import Measured, measure
from .wikitext_corpora import Corpus, tokens_file

MARKS = {"<unk>": "version 1, not the raw one, where rare words are <unk>", " @-@ ": "text in WikiText's tokens"}
"""What occurs in the training part of every WikiText of version 1, and what that says."""


def is_official(corpus: Corpus, folder: Path) -> bool:
    """Are the files in a folder those that were published?"""
    return not any(corpus.files[split].check(folder / tokens_file(split)) for split in SPLITS)


def check(corpus: Corpus, folder: Path, *, given: bool) -> None:
    """Sees that the files in a folder are those of a corpus.

    Args:
        corpus: which.
        folder: of the files.
        given: by the user, who may have a sample of it: another text is told of then, and accepted.

    Raises:
        UserError: a file is another one than was published, and not given; or not of version 1, or empty.
    """
    for mark, said in MARKS.items():
        if not _occurs(mark, folder / tokens_file("train")):
            raise UserError(f"{tokens_file('train')}: found no '{mark}' in it; expected {said}")
    for split in SPLITS:
        path = folder / tokens_file(split)
        if wrong := corpus.files[split].check(path):
            _differs(corpus, split, measure(path), wrong, given=given)


def _occurs(mark: str, path: Path) -> bool:
    with open(path, "rb") as file:
        return any(mark.encode() in line for line in file)


def _differs(corpus: Corpus, split: str, measured: Measured, wrong: str, *, given: bool) -> None:
    if not measured.lines:
        raise UserError(f"{tokens_file(split)}: found nothing in it; expected the {split} part of {corpus.name}")
    official = corpus.files[split]
    said = (
        f"{tokens_file(split)} is not that of {corpus.name}: found {measured.lines:,} lines, {measured.tokens:,} "
        f"tokens; expected {official.lines:,} lines, {official.tokens:,} tokens; {wrong}"
    )
    if not given:
        raise UserError(f"{said}; remove the downloaded files and run it again, or name your own by --from")
    print(f"wikitext: warning: {said}; going on with it", file=sys.stderr)
