"""Finds tokens that are under-trained (glitch tokens), from the weights of models alone.

If the input embedding of a model is its output layer too, tokens are ranked by `distance`, 1 minus the cosine of their
row to the sum of the rows of tokens that are known to be unused; else, or where the unused rows are not alike or not
known, by `norm`, that of their row of the input embedding. A low value means little training. The first table has the
20 lowest tokens that are not known to be unused, as the vocabulary writes them; the second how many do not exceed the
threshold, the largest value of a known unused token, or with fewer than three of these, the value that 2% of the tokens
do not exceed.

    agg-fairseq tokens models/gpt2 --train-text wiki.train.tokens
    agg-fairseq tokens runs/mle/checkpoint_best.pt runs/agg/checkpoint_best.pt --data data-bin/wikitext-2

Reference: Land and Bartolo (2024).
"""

import argparse

from ..evaluation import Result, under_trained
from ..evaluation.under_trained import CAUTION, worst_tokens
from .options import add_models, calling

add_arguments, measure = calling(under_trained, add_models)


def run(arguments: argparse.Namespace) -> Result:
    result = measure(arguments)
    print(f"{worst_tokens(result).table()}\n\n{CAUTION}\n")
    return result
