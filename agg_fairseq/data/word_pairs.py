"""Data sets of pairs of words with human scores of how similar they are: MEN, WordSim-353, RG-65, RareWords."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path

from ..errors import UserError
from ..files import read_lines

DATASETS = ("MEN", "WS353", "RG65", "RW")
LINES = "lines of word<TAB>word<TAB>score"


def dataset_files(asked: Sequence[str | Path]) -> list[Path]:
    """The files of data sets, each once.

    Args:
        asked: files; or names, MEN, WS353, RG65, RW, which are looked for as NAME.txt in $AGG_DATA/word-similarity.
    """
    files: list[Path] = []
    for part in map(str, asked):
        if part in DATASETS:
            root = os.environ.get("AGG_DATA")
            path = Path(root or "$AGG_DATA") / "word-similarity" / f"{part}.txt"
            if not path.is_file():
                missing = "AGG_DATA not set" if root is None else f"no {path}"
                raise UserError(f"--datasets {part}: found {missing}; put {LINES} in {path}, or name a file of them")
            files.append(path)
        elif os.path.isfile(part):  # unlike Path.is_file, False for a name too long for a file
            files.append(Path(part))
        else:
            raise UserError(f"--datasets: found no file {part}; expected files, or names of {', '.join(DATASETS)}")
    return list(dict.fromkeys(files))


def read_word_pairs(path: str | Path) -> list[tuple[str, str, float]]:
    """Reads a file with a line `word<TAB>word<TAB>score` for each pair; the scores are on any scale."""
    pairs = []
    for count, line in enumerate(read_lines(path, LINES), 1):
        try:
            first, second, score = (field.strip() for field in line.split("\t"))
            if not first or not second or not math.isfinite(float(score)):
                raise ValueError
        except ValueError:
            found = line.strip()[:80]
            raise UserError(f"{path}, line {count}: found {found!r}; expected word<TAB>word<TAB>score") from None
        pairs.append((first, second, float(score)))
    if not pairs:
        raise UserError(f"{path}: found no pair; expected {LINES}")
    return pairs
