"""Measures how evenly the output embeddings of checkpoints are distributed over all directions.

`I(W)` is the isotropy of all embeddings and, with --data, of each frequency group by itself (1 is isotropic). It is
computed from the eigenvectors of WᵀW, each of which has two directions. `I(W)` uses the one that the linear-algebra
library returns; `I(W) ±` uses both, so that it is the same on every machine. `S(W)` is the mean cosine between two
embeddings (0 is isotropic), and `cos(rare, frequent)` is the mean cosine between a rare and a frequent one. The last
columns are singular values divided by the largest: the second, the tenth, the median and the smallest. All values are
computed in float64 over all rows of the embedding, including those of special tokens, which are in no group. For a
translation model, frequencies are those of the target side. --json has all singular values.

    agg-fairseq isotropy runs/mle/checkpoint_best.pt runs/agg/checkpoint_best.pt --data data-bin/wikitext-2
"""

from __future__ import annotations

import argparse

from ..checkpoint import open_checkpoints
from ..evaluation import isotropy
from .options import add_grouping, add_json, add_names, check_json, print_result


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("inputs", nargs="+", metavar="CKPT", help="checkpoints, compared side by side")
    add_names(parser)
    parser.add_argument(
        "--data", metavar="DATA", help="folder written by fairseq-preprocess, with the training split, for the groups"
    )
    add_grouping(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> None:
    """Measures every checkpoint, prints the table and writes the JSON file."""
    check_json(arguments.json, [*arguments.inputs, arguments.data])
    checkpoints = open_checkpoints(arguments.inputs, arguments.name)
    result = isotropy(checkpoints, arguments.data, groups=arguments.groups)
    print_result(result, arguments.json)
