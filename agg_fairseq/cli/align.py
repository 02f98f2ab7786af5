"""Aligns the words of a parallel training split, as `align-sim` needs them.

The binarized split is aligned, so the positions are those of the model's sub-words. The aligner is eflomal, which `pip
install '.[align]'` installs. It aligns both directions, and the links of the two are combined by grow-diag-final-and.
The file has a line for each sentence pair, `0-0 1-2 …`, with the positions, from 0, of a source and a target token for
each link. Sentences of more than 1023 tokens have no links. eflomal cannot be seeded: a second run finds slightly
different links.

    agg-fairseq align data-bin/wmt14.en-de -o wmt14.en-de.align

Reference: Östling and Tiedemann (2016).
"""

import argparse

from ..data.alignments import align_split
from ..result import Result
from .options import add_options, call
from .outputs import add_output


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", metavar="DATA", help="folder of fairseq-preprocess, with train.X-Y.X.bin")
    add_output(parser, "alignments")
    add_options(parser, "--json")


def run(arguments: argparse.Namespace) -> Result:
    return call(align_split, arguments)
