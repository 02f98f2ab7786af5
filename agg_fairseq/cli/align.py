"""Aligns the words of a parallel training split, as `align-sim` needs them.

The split is the binarised one of DATA, so that positions are of the model's sub-words. The aligner is eflomal, which
`pip install 'agg-fairseq[align]'` brings, in both directions, whose links are joined by grow-diag-final-and. FILE gets
a line per sentence pair, `0-0 1-2 …`: the positions, from 0, of a source and a target token for each link. A sentence
of more than 1023 tokens gets none. eflomal draws without a seed: a second run finds somewhat other links.

    agg-fairseq align data-bin/wmt14.en-de --output wmt14.en-de.align
"""

from __future__ import annotations

import argparse
import importlib.metadata
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tqdm import tqdm

from .. import __version__
from ..data.alignments import ParallelSplit, load_parallel, symmetrized_lines, training_pair
from ..errors import UserError, first_line
from ..files import check_writable, write_whole

DATA_FILES = ("*.bin", "*.idx", "dict.*")
MODELS = {1: "IBM model 1", 2: "HMM", 3: "HMM with fertility"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options; those that fairseq-preprocess has too bear the same names."""
    parser.add_argument("data", metavar="DATA", help="folder written by fairseq-preprocess, with train.X-Y.X.bin")
    parser.add_argument("--output", required=True, metavar="FILE", help="alignments to write")
    parser.add_argument("-s", "--source-lang", metavar="X", help="source language (default: as the files are named)")
    parser.add_argument("-t", "--target-lang", metavar="Y", help="target language (default: as the files are named)")
    parser.add_argument(
        "--model",
        type=int,
        choices=tuple(MODELS),
        default=3,
        help=f"of eflomal: {', '.join(f'{number} ({name})' for number, name in MODELS.items())}; default: %(default)s",
    )


def run(arguments: argparse.Namespace) -> None:
    """Aligns both directions, writes their links, and prints a summary and the signature."""
    eflomal = _eflomal()
    split = load_parallel(arguments.data, training_pair(arguments.data, arguments.source_lang, arguments.target_lang))
    _check_output(Path(arguments.output), Path(arguments.data).resolve())
    check_writable(arguments.output)
    started = time.monotonic()
    with _terminable(), tempfile.TemporaryDirectory() as folder:
        forward, reverse = (Path(folder) / direction for direction in ("forward", "reverse"))
        _align(eflomal.Aligner(model=arguments.model), split, forward, reverse)
        write_whole(arguments.output, lambda temporary: _write(temporary, forward, reverse, len(split)))
    elapsed = time.monotonic() - started
    print(f"{arguments.output}: {len(split)} sentence pairs aligned in {elapsed:.0f} s\n{_signature(arguments, split)}")


def _check_output(output: Path, data: Path) -> None:
    """Refuses the files of the data, by whatever way or link `output` comes to them."""
    for place in (output.resolve(), output.parent.resolve() / output.name):
        read = (path.resolve() for pattern in DATA_FILES for path in data.glob(pattern))
        if place in read or (place.parent == data and any(map(place.match, DATA_FILES))):
            raise UserError(f"--output: found {output}, a file of the data in {data}; name another")


@contextmanager
def _terminable() -> Iterator[None]:
    """Lets SIGTERM raise, so that temporary files go and `subprocess.run`, by which eflomal is called, kills it."""

    def stop(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _eflomal() -> Any:
    try:
        import eflomal
    except ImportError as error:
        raise UserError(
            f"align: eflomal is missing ({first_line(error)}); pip install 'agg-fairseq[align]', or give alignments of "
            "another aligner, such as fast_align, in Pharaoh format to align-sim"
        ) from error
    return eflomal


def _align(aligner: Any, split: ParallelSplit, forward: Path, reverse: Path) -> None:
    """Writes the links of both directions, each as source-target."""
    texts = (_text(split, side, of) for side, of in zip((split.source, split.target), split.languages, strict=True))
    quiet = not sys.stderr.isatty()
    try:
        aligner.align(*texts, links_filename_fwd=str(forward), links_filename_rev=str(reverse), quiet=quiet)
    except (subprocess.CalledProcessError, OSError) as error:
        raise UserError(
            f"align: eflomal failed ({first_line(error)}); see what it said above, and whether there is room in "
            f"{tempfile.gettempdir()}"
        ) from error


def _text(split: ParallelSplit, side: Any, language: str) -> Iterator[str]:
    """The sentences of a side, tokens as their numbers, which no aligner can split or change."""
    indices = tqdm(range(len(split)), desc=f"reading {language}", unit="sentence", disable=None, leave=False)
    for sentence in split.sentences(side, indices):
        yield " ".join(map(str, sentence.tolist()))


def _write(path: Path, forward: Path, reverse: Path, pairs: int) -> None:
    with forward.open() as forward_lines, reverse.open() as reverse_lines, path.open("w", encoding="utf-8") as file:
        lines = symmetrized_lines(forward_lines, reverse_lines)
        for line in tqdm(lines, desc="symmetrizing", total=pairs, unit="pair", disable=None, leave=False):
            file.write(line + "\n")


def _signature(arguments: argparse.Namespace, split: ParallelSplit) -> str:
    """Every choice that moves a link."""
    return "|".join(
        [
            f"aligner:eflomal-{importlib.metadata.version('eflomal')},no-seed",
            f"model:{arguments.model}",
            "symmetrized:grow-diag-final-and",
            f"languages:{'-'.join(split.languages)}",
            f"sentence-pairs:{len(split)}",
            f"version:{__version__}",
        ]
    )
