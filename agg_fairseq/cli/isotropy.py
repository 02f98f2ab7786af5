"""Measures how evenly the output embeddings of checkpoints are distributed over all directions.

The table has a line per measure and a column per checkpoint. With --data, the first three are also measured for the
rows of each frequency group. All values are computed in float64 over all rows of the embedding W, including those of
special tokens, which are in no group. μ is the mean row of W. For a translation model, frequencies are those of the
target side.

I(W)        isotropy: 1 is isotropic, 0 is degenerate. It is computed from the eigenvectors of WᵀW, each of which has
            two directions. I(W) uses the one that the linear-algebra library returns, and I(W) ± uses both, so that it
            is the same on every machine.
S(W)        mean cosine between two embeddings: 0 is isotropic, 1 is degenerate.
I(W−μ)      I and S after the mean row has been subtracted from each row. A shift of all rows of an untied output
S(W−μ)      embedding changes no probability, but it can change I(W) and S(W) completely.
mean share  length of the mean row as a share of the mean length of the rows: 0 if the rows cancel each other, 1 if
            all point in the same direction.
IsoScore    share of the dimensions that the rows use evenly (Rudman et al. 2022): 1 is isotropic, 0 means that all rows
            differ along one line at most. It depends neither on the mean row nor on the scale of W.

cos(rare, frequent) is the mean cosine between a rare and a frequent embedding. The last lines are singular values
divided by the largest: the second, the tenth, the median and the smallest. --json has all singular values, and all
measures for each group.

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
    print_result(result, arguments.json, transposed=True)
