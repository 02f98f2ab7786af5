"""Measures whether the embeddings of translation models know which words of the two languages were aligned.

AlignSim (0 to 1) of a word is the cosine of two vectors over the joined vocabulary: how often the word was aligned with
each other word, and the softmax of its embedding's cosines with all embeddings × the temperature. The table has the
mean over the words that were ever aligned ("labeled"), of each frequency group and of all; the last row has their
number. The row `orthogonal` is that of embeddings that know nothing, all at right angles to each other. Where many
words are the same in both languages, and so are aligned with themselves, it is far from 0; what a model knows is the
difference from it. Frequencies are those of the target side: words that only the source has are therefore rare.

The file of --alignments has a line for each sentence pair of the binarized training split of DATA, as
`agg-fairseq align` and fast_align write it: `0-0 1-2 …`, for each link the positions, from 0, of a source and a target
token. Source and target are X and Y in the names of the files, train.X-Y.X.bin; AlignSim treats both alike.

    agg-fairseq align-sim runs/mle/checkpoint_best.pt runs/agps/checkpoint_best.pt --data data-bin/wmt14.en-de \\
        --alignments wmt14.en-de.align
"""

from __future__ import annotations

import argparse

from ..checkpoint import open_checkpoints
from ..evaluation import align_sim
from .options import add_data, add_grouping, add_json, add_names, check_json, print_result


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("inputs", nargs="+", metavar="CKPT", help="checkpoints, compared side by side")
    add_names(parser)
    add_data(parser)
    parser.add_argument("--alignments", required=True, metavar="FILE", help="word alignments of that split")
    add_grouping(parser, default="frequency")
    parser.add_argument(
        "--temperature", type=float, default=10.0, metavar="TAU", help="factor of the cosines (default: 10)"
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> None:
    """Measures every checkpoint, prints the table and writes the JSON file."""
    check_json(arguments.json, [*arguments.inputs, arguments.data, arguments.alignments])
    result = align_sim(
        open_checkpoints(arguments.inputs, arguments.name),
        arguments.data,
        arguments.alignments,
        groups=arguments.groups,
        temperature=arguments.temperature,
    )
    print_result(result, arguments.json)
