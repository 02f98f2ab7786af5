"""Measures whether the output embeddings of checkpoints find the words alike that people do.

Per data set, Spearman's rank correlation × 100 (not in --json) of human scores and the cosine of the two words'
vectors. The vector of a word is the mean of the embeddings of its tokens; a word is looked for as it is written, and
where the dictionary lacks a token of it, in lower case. Pairs with a word that is in neither form, or of which an
embedding is all zeros, are left out; the last row says how many pairs are left. Below two, or where all cosines or all
scores are the same, nothing is defined. A data set is a file with a pair per line, `word<TAB>word<TAB>score`;
--datasets takes files, a folder of MEN.txt, WS353.txt, RG65.txt and RW.txt or some of them, and these bare names,
which are looked for in $AGG_DATA/word-similarity.

    agg-fairseq word-similarity runs/mle/checkpoint_best.pt runs/agg/checkpoint_best.pt \\
        --data data-bin/wikitext-2 --datasets MEN WS353 RG65 RW
"""

from __future__ import annotations

import argparse
import math
import os
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from tqdm import tqdm

from .. import __version__
from ..data.subwords import Splitter, check_words
from ..errors import UserError, first_line
from ..files import open_file
from ..metrics import WordSimilarity, word_similarity
from .embeddings import Embeddings, load_all
from .measured import Measured, measure_and_show
from .naming import names_of, stem
from .table import number
from .tokenisers import add_tokeniser, splitter_of, tokeniser_files

DATASETS = ("MEN", "WS353", "RG65", "RW")
LINES = "lines of word<TAB>word<TAB>score"
SCORE = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)
PAIRS = "pairs"
"""The row of how many are covered."""


@dataclass(frozen=True)
class Pairs:
    """Pairs of words of a data set, with the human scores."""

    first: list[str]
    second: list[str]
    scores: list[float]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("inputs", nargs="+", metavar="CKPT", help="checkpoints, compared side by side")
    parser.add_argument("--name", nargs="+", metavar="NAME", help="a name per checkpoint (default: its folder)")
    parser.add_argument(
        "--data", required=True, metavar="DATA", help="folder written by fairseq-preprocess, with the training split"
    )
    parser.add_argument(
        "--datasets", required=True, nargs="+", metavar="WHAT", help=f"files, folders, or of {','.join(DATASETS)}"
    )
    add_tokeniser(parser)
    parser.add_argument("--json", metavar="FILE", help="also write all numbers to FILE")


def run(arguments: argparse.Namespace) -> None:
    """Measures every checkpoint, prints the table and writes the JSON file."""
    read = [*arguments.inputs, arguments.data, *tokeniser_files(arguments), *files_of(arguments.datasets)]
    measure_and_show(measure, arguments, read)


def measure(arguments: argparse.Namespace) -> Measured:
    """Measures every checkpoint on every data set."""
    names = names_of(arguments.inputs, arguments.name)
    _check_names(names)
    datasets = _read_all(arguments.datasets)
    _check_scipy()
    embeddings, vocabulary = load_all(arguments.inputs, arguments.data)
    if arguments.bpe == "words":
        check_words(vocabulary.dictionary)
    tokens = _tokens(datasets, splitter_of(arguments, vocabulary.dictionary))
    progress = tqdm(embeddings, desc="word similarity", unit="checkpoint", disable=None, leave=False)
    results = [
        {name: word_similarity(one.weight, *tokens[name], pairs.scores) for name, pairs in datasets.items()}
        for one in progress
    ]
    return Measured(
        header=["", *datasets],
        rows=[*_rows(names, results), *_pairs_rows(names, results, datasets)],
        signature=_signature(embeddings, list(datasets), arguments.bpe),
        values={
            "pairs": {name: len(pairs.scores) for name, pairs in datasets.items()},
            "checkpoints": [
                {"name": name, "path": one.path, "datasets": {key: asdict(value) for key, value in result.items()}}
                for name, one, result in zip(names, embeddings, results, strict=True)
            ],
        },
    )


def _check_names(names: Sequence[str]) -> None:
    taken = {PAIRS, *(f"{PAIRS} of {name}" for name in names)}
    clash = next((name for name in names if name in taken), None)
    if clash is not None:
        raise UserError(f"--name: found {clash!r}, the row of the covered pairs; give the checkpoint another name")


def _check_scipy() -> None:
    try:
        import scipy.stats  # noqa: F401
    except ImportError as error:
        raise UserError("word-similarity: scipy is missing; pip install 'agg-fairseq[eval]'") from error


def _read_all(asked: Sequence[str]) -> dict[str, Pairs]:
    """The data sets that are asked for, each once, by name."""
    paths = files_of(asked)
    names = names_of(paths, None, stem)
    return {name: _read(path) for name, path in zip(names, paths, strict=True)}


def files_of(asked: Sequence[str]) -> list[str]:
    """The files of the data sets that are asked for, each once.

    Raises:
        UserError: one is not there, or has no name.
    """
    parts = [part for one in asked for part in ([one] if os.path.exists(one) else one.split(","))]
    if not all(parts):
        raise UserError(f"--datasets: found a name that is empty; expected files, folders, or of {', '.join(DATASETS)}")
    return list(dict.fromkeys(str(path) for part in parts for path in _files(part)))


def _files(asked: str) -> list[Path]:
    """The files that a folder, a file or a bare name stands for."""
    if asked in DATASETS:
        return [_of_name(asked)]
    path = Path(asked)
    if not os.path.isdir(path):  # unlike path.is_dir(), False for a name too long for a file
        if not os.path.isfile(path):
            raise UserError(f"--datasets: found no file {asked}; expected one, a folder, or of {', '.join(DATASETS)}")
        return [path]
    found = [path / f"{name}.txt" for name in DATASETS if (path / f"{name}.txt").is_file()]
    if not found:
        raise UserError(f"{asked}: found none of {', '.join(f'{name}.txt' for name in DATASETS)}; name the files")
    return found


def _of_name(name: str) -> Path:
    root = os.environ.get("AGG_DATA")
    path = Path(root or "$AGG_DATA") / "word-similarity" / f"{name}.txt"
    if root is None or not path.is_file():
        found = "AGG_DATA not set" if root is None else f"no {path}"
        raise UserError(f"--datasets {name}: found {found}; put the data set in {path} ({LINES}), or name its file")
    return path


def _read(path: str) -> Pairs:
    try:
        with open_file(path, encoding="utf-8-sig", newline="\n") as file:
            lines = [_line(line, f"{path}, line {count}") for count, line in enumerate(file, 1)]
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: unreadable ({first_line(error)}); expected {LINES}") from error
    if not lines:
        raise UserError(f"{path}: found no pair; expected {LINES}")
    first, second, scores = map(list, zip(*lines, strict=True))
    return Pairs(first, second, scores)


def _line(line: str, place: str) -> tuple[str, str, float]:
    fields = [field.strip() for field in line.split("\t")]
    try:
        first, second, score = fields
        if not first or not second or not SCORE.fullmatch(score) or not math.isfinite(float(score)):
            raise ValueError
    except ValueError as error:
        raise UserError(f"{place}: found {line.strip()[:80]!r}; expected word<TAB>word<TAB>score") from error
    return first, second, float(score)


def _tokens(datasets: dict[str, Pairs], splitter: Splitter) -> dict[str, tuple[list[list[int]], list[list[int]]]]:
    """The tokens of the first and of the second words of every data set; none for a word that is not covered."""

    @cache
    def tokens(word: str) -> list[int]:
        return splitter.indices(word) or splitter.indices(word.lower())

    return {name: (list(map(tokens, of.first)), list(map(tokens, of.second))) for name, of in datasets.items()}


def _rows(names: Sequence[str], results: Sequence[dict[str, WordSimilarity]]) -> list[list[str | None]]:
    """A row per checkpoint."""
    scaled = [
        [None if of.spearman is None else number(100 * of.spearman, 2) for of in result.values()] for result in results
    ]
    return [[name, *cells] for name, cells in zip(names, scaled, strict=True)]


def _pairs_rows(
    names: Sequence[str], results: Sequence[dict[str, WordSimilarity]], datasets: dict[str, Pairs]
) -> list[list[str | None]]:
    """How many pairs are covered: a row for all, or where embeddings of zeros set them apart, one per checkpoint."""
    rows = [
        [f"{result[name].covered:,}/{len(pairs.scores):,}" for name, pairs in datasets.items()] for result in results
    ]
    if all(row == rows[0] for row in rows):
        return [[PAIRS, *rows[0]]]
    return [[f"{PAIRS} of {name}", *row] for name, row in zip(names, rows, strict=True)]


def _signature(embeddings: Sequence[Embeddings], datasets: Sequence[str], bpe: str) -> str:
    """Every choice that moves a number."""
    return "|".join(
        [
            f"matrix:{','.join(dict.fromkeys(one.matrix for one in embeddings))}",
            f"datasets:{','.join(datasets)}",
            f"bpe:{bpe}",
            "word:mean-of-tokens",
            "case:as-written,else-lower",
            "uncovered-pairs:left-out",
            "cosine,spearman",
            f"version:{__version__}",
        ]
    )
