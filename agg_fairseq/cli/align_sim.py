"""Measures whether embeddings of translation models are similar for words of the two languages that were aligned.

AlignSim (0 to 1) of a word is the cosine of two vectors over the joined vocabulary: how often the word was aligned with
each other word, and the softmax of the cosines of its embedding with all embeddings × the temperature. The table has
the mean over the words that were aligned at least once ("labeled"), for each frequency group and for all groups; the
last row has their number. The row `orthogonal` has the values of embeddings that are all orthogonal to each other and
contain no information. It is far from 0 if many words are the same in both languages, and are therefore aligned with
themselves. Only the difference from this row is due to what a model has learned. Frequencies are those of the target
side, so words that occur only in the source are rare.

The file of --alignments has a line for each sentence pair of the binarized training split of DATA, as written by
`agg-fairseq align` and fast_align: `0-0 1-2 …`, with the positions, from 0, of a source and a target token for each
link. Source and target are X and Y in the names of the files, train.X-Y.X.bin; AlignSim does not depend on their order.

    agg-fairseq align-sim runs/mle/checkpoint_best.pt runs/agps/checkpoint_best.pt --data data-bin/wmt14.en-de \\
        --alignments wmt14.en-de.align
"""

from __future__ import annotations

import argparse

from ..checkpoints.fairseq_checkpoint import open_checkpoints
from ..evaluation import align_sim
from .options import add_data, add_grouping, add_json, add_names, check_json, options_of, print_result


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("inputs", nargs="+", metavar="CKPT", help="checkpoints, compared side by side")
    add_names(parser)
    add_data(parser)
    parser.add_argument("--alignments", required=True, metavar="FILE", help="word alignments of the training split")
    add_grouping(parser, default="frequency")
    parser.add_argument(
        "--temperature", type=float, default=10.0, metavar="TAU", help="factor of the cosines (default: 10)"
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> None:
    """Measures every checkpoint, prints the table and writes the JSON file."""
    check_json(arguments.json, [*arguments.inputs, arguments.data, arguments.alignments])
    models = open_checkpoints(arguments.inputs, arguments.name)
    print_result(align_sim(models, **options_of(align_sim, arguments)), arguments.json)
