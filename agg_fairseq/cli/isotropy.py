"""Measures how evenly the output embeddings of models are distributed over all directions.

The table has a line per measure and a column per model. With --data or --text, the first three are also measured
for the rows of each frequency group. All values are computed in float64 over all rows of the embedding W, including
those of special tokens, which are in no group. μ is the mean row of W. For a translation model, frequencies are those
of the target side.

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
    agg-fairseq isotropy models/gpt2 --text wiki.train.tokens
"""

from __future__ import annotations

import argparse

from ..checkpoints.opening import open_models
from ..evaluation import isotropy
from .options import add_frequencies, add_grouping, add_json, add_models, check_json, options_of, print_result


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    add_models(parser)
    add_frequencies(parser)
    add_grouping(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> None:
    """Measures every model, prints the table and writes the JSON file."""
    check_json(arguments.json, [*arguments.inputs, arguments.data, arguments.text])
    models = open_models(arguments.inputs, arguments.name, arguments.matrix)
    result = isotropy(models, **options_of(isotropy, arguments))
    print_result(result, arguments.json, transposed=True)
