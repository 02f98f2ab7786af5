"""Measures how evenly the output embeddings of models are distributed over all directions.

All values are computed in float64 over all rows of the embedding W, including those of special tokens, which are in no
group. μ is the mean row of W. With frequencies, the first three are also measured for the rows of each group; for a
translation model, frequencies are those of the target side.

I(W)        isotropy: 1 is isotropic, 0 is degenerate. It is computed from the eigenvectors of WᵀW, each of which has
            two directions. I(W) uses the one that the linear-algebra library returns, and I(W) ± uses both, so that it
            is the same on every machine.
S(W)        mean cosine between two embeddings: 0 is isotropic, 1 is degenerate.
I(W−μ)      I and S after the mean row has been subtracted from each row. A shift of all rows of an untied output
S(W−μ)      embedding changes no probability, but it can change I(W) and S(W) completely.
mean share  ‖μ‖ / mean ‖w‖: 0 if the rows cancel each other, 1 if all point in the same direction.
IsoScore    share of the dimensions that the rows use evenly (Rudman et al. 2022): 1 is isotropic, 0 means that all rows
            differ along one line at most. It depends neither on the mean row nor on the scale of W.

μ is that of the whole matrix also for I(W−μ) and S(W−μ) of a group; the mean share and IsoScore of a group are of its
own mean. cos(rare, frequent) is the mean cosine between a rare and a frequent embedding. The last columns are singular
values divided by the largest: the second, the tenth, the median and the smallest.

    agg-fairseq isotropy runs/mle/checkpoint_best.pt runs/agg/checkpoint_best.pt --data data-bin/wikitext-2
    agg-fairseq isotropy models/gpt2 --train-text wiki.train.tokens

Reference: Yu et al. (2022), Eq. 3, Tables 10 and 11; Gao et al. (2019), Fig. 2b; Rudman et al. (2022).
"""

import argparse

from ..evaluation import isotropy
from .options import add_data, add_groups, add_models, add_train_text, models_by_name, select
from .outputs import add_json, print_result


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The models, and in what their tokens are counted."""
    add_models(parser)
    add_data(parser)
    add_train_text(parser)
    add_groups(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> None:
    """Measures the embeddings, and prints the table, with a column for each model."""
    options = select(arguments, "data", "train_text", "groups")
    print_result(isotropy(models_by_name(arguments), **options), arguments.json, transposed=True)
