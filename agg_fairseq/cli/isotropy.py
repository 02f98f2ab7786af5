"""Measures how evenly the output embeddings of models are distributed over all directions.

All values are computed in float64 over all rows of the embedding W, including those of special tokens, which are in no
group. With --data or --train-text, I(W), I(W−μ) and IsoScore are also measured for the rows of each group.

I(W)        isotropy: 1 is isotropic, 0 is degenerate. Each eigenvector of WᵀW has two directions: I(W) uses the one
            that the linear-algebra library returns, and I(W) ± both, so that it is the same on every machine.
S(W)        mean cosine between two embeddings: 0 is isotropic, 1 is degenerate
I(W−μ)      I and S after the mean row of W, μ, has been subtracted from each row. A shift of all rows of an untied
S(W−μ)      output embedding changes no probability, but it can change I(W) and S(W) completely.
mean share  ‖μ‖ / mean ‖w‖: 0 if the rows cancel each other, 1 if all point in the same direction
IsoScore    share of the dimensions that the rows use evenly (Rudman et al. 2022): 1 is isotropic, 0 means that all rows
            differ along one line at most. It depends neither on the mean row nor on the scale of W.

cos(rare, frequent) is the mean cosine between a rare and a frequent embedding. The last columns are singular values
divided by the largest: the second, the tenth, the median and the smallest.

    agg-fairseq isotropy runs/mle/checkpoint_best.pt runs/agg/checkpoint_best.pt --data data-bin/wikitext-2
    agg-fairseq isotropy models/gpt2 --train-text wiki.train.tokens

Reference: Yu et al. (2022), Eq. 3, Tables 10 and 11; Gao et al. (2019), Fig. 2b; Rudman et al. (2022).
"""

import argparse

from ..evaluation import Result, isotropy
from .options import add_models, add_options, call, models_by_name


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_models(parser)
    add_options(parser, "--data", "--train-text", "--groups", "--json")
    parser.set_defaults(transposed=True)


def run(arguments: argparse.Namespace) -> Result:
    return call(isotropy, arguments, models_by_name(arguments))
