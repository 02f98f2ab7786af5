"""Data sets of pairs of words with human scores of how similar they are: MEN, WordSim-353, RG-65, RareWords."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import UserError, first_line
from ..files import open_file

DATASETS = ("MEN", "WS353", "RG65", "RW")
LINES = "lines of word<TAB>word<TAB>score"
SCORE = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)


@dataclass(frozen=True)
class WordPairs:
    """A data set: pairs of words, N of each list, and the human score of each pair, on any scale."""

    first: list[str]
    second: list[str]
    scores: list[float]


def dataset_files(asked: Sequence[str | Path]) -> list[Path]:
    """The files of data sets, each once.

    Args:
        asked: files; folders with MEN.txt, WS353.txt, RG65.txt, RW.txt or some of them; and these names without `.txt`,
            also several separated by commas, which are looked for in $AGG_DATA/word-similarity.

    Raises:
        UserError: a file is not there.
    """
    expected = f"expected files, folders, or names of {', '.join(DATASETS)}"
    parts = [part for one in map(str, asked) for part in ([one] if os.path.exists(one) else one.split(","))]
    found: list[Path] = []
    for part in parts:
        path = Path(part)
        if part in DATASETS:
            root = os.environ.get("AGG_DATA")
            path = Path(root or "$AGG_DATA") / "word-similarity" / f"{part}.txt"
            if root is None or not path.is_file():
                missing = "AGG_DATA not set" if root is None else f"no {path}"
                raise UserError(
                    f"--datasets {part}: found {missing}; put the data set in {path} ({LINES}), or name its file"
                )
            found.append(path)
        elif os.path.isdir(part):  # unlike Path.is_dir, False for a name too long for a file
            files = [path / f"{name}.txt" for name in DATASETS if (path / f"{name}.txt").is_file()]
            if not files:
                names = ", ".join(f"{name}.txt" for name in DATASETS)
                raise UserError(f"{path}: found none of {names}; name the files")
            found += files
        elif os.path.isfile(part):
            found.append(path)
        else:
            raise UserError(f"--datasets: found no file {part}; {expected}")
    return list(dict.fromkeys(found))


def read_word_pairs(path: str | Path) -> WordPairs:
    """Reads a data set, a file with a line `word<TAB>word<TAB>score` for each pair.

    Raises:
        UserError: the file cannot be read, has no line, or one of another form.
    """
    pairs = []
    try:
        with open_file(path, encoding="utf-8-sig", newline="\n") as file:
            for count, line in enumerate(file, 1):
                fields = [field.strip() for field in line.split("\t")]
                is_pair = len(fields) == 3 and all(fields) and SCORE.fullmatch(fields[2])
                if not is_pair or math.isinf(float(fields[2])):
                    found = line.strip()[:80]
                    raise UserError(f"{path}, line {count}: found {found!r}; expected word<TAB>word<TAB>score")
                pairs.append((fields[0], fields[1], float(fields[2])))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: unreadable ({first_line(error)}); expected {LINES}") from error
    if not pairs:
        raise UserError(f"{path}: found no pair; expected {LINES}")
    return WordPairs(*map(list, zip(*pairs, strict=True)))
