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
from .options import add_options, select
from .outputs import add_output, print_result


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("data", metavar="DATA", help="folder of fairseq-preprocess, with train.X-Y.X.bin")
    add_output(parser, "alignments")
    add("-s", "--source-lang", metavar="X", help="source language (default: as the files are named)")
    add("-t", "--target-lang", metavar="Y", help="target language (default: as the files are named)")
    add_options(parser, "--json")


def run(arguments: argparse.Namespace) -> None:
    print_result(align_split(**select(arguments, "data", "output", "source_lang", "target_lang")), arguments.json)
