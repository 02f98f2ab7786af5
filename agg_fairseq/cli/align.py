"""Aligns the words of a parallel training split, as `align-sim` needs them.

The binarized split of DATA is aligned, so the positions are those of the model's sub-words. The aligner is eflomal,
which `pip install '.[align]'` installs. It aligns both directions, and the links of the two are combined by
grow-diag-final-and. FILE has a line for each sentence pair, `0-0 1-2 …`, with the positions, from 0, of a source and a
target token for each link. Sentences of more than 1023 tokens have no links. eflomal cannot be seeded: a second run
finds slightly different links.

    agg-fairseq align data-bin/wmt14.en-de --output wmt14.en-de.align
"""

from __future__ import annotations

import argparse
import signal
import time

from ..data.eflomal_alignment import MODELS, align_split
from .options import options_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options; those that fairseq-preprocess has too have the same names."""
    parser.add_argument("data", metavar="DATA", help="folder written by fairseq-preprocess, with train.X-Y.X.bin")
    parser.add_argument("--output", required=True, metavar="FILE", help="alignments to write")
    for side, letter in (("source", "X"), ("target", "Y")):
        help_text = f"{side} language (default: as the files are named)"
        parser.add_argument(f"-{side[0]}", f"--{side}-lang", dest=side, metavar=letter, help=help_text)
    parser.add_argument(
        "--model",
        type=int,
        choices=tuple(MODELS),
        default=3,
        help="model of eflomal: "
        f"{', '.join(f'{number} ({name})' for number, name in MODELS.items())}; default: %(default)s",
    )


def run(arguments: argparse.Namespace) -> None:
    """Aligns both directions, writes their links, and prints a summary and the signature."""

    def stop(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    # SIGTERM raises, so that temporary files are removed and eflomal, which is called by subprocess.run, is killed.
    before = signal.signal(signal.SIGTERM, stop)
    started = time.monotonic()
    try:
        pairs, signature = align_split(**options_of(align_split, arguments))
    finally:
        signal.signal(signal.SIGTERM, before)
    elapsed = time.monotonic() - started
    print(f"{arguments.output}: {pairs} sentence pairs aligned in {elapsed:.0f} s\n{signature}")
