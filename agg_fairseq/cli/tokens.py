"""Finds tokens that are under-trained (glitch tokens), from the weights of models alone.

If the input embedding of a model is its output layer too, tokens are ranked by `distance`, which is 1 minus the cosine
of their row to the sum of the rows of tokens that are known to be unused. If the two are separate, or the unused rows
are not alike, they are ranked by `norm`, that of their row of the input embedding. The lower the value, the worse the
token was trained. Tokens are known to be unused if they are rows beyond the tokenizer, named as unused or reserved,
bytes that no UTF-8 has, or special tokens and fillers of a dictionary that do not occur; --unused names others. The
threshold is the largest value of a known unused token, or the value that 2% of the tokens do not exceed if fewer than
three are known. The first table has how many other tokens do not exceed it, the second the worst ones as text, with
escapes for bytes that are no whole character.

    agg-fairseq tokens models/gpt2 --train-text wiki.train.tokens
    agg-fairseq tokens runs/mle/checkpoint_best.pt runs/agg/checkpoint_best.pt --data data-bin/wikitext-2

Reference: Land and Bartolo (2024).
"""

import argparse

from ..evaluation import under_trained
from ..evaluation.under_trained import CAUTION, INDICATORS, worst_tokens
from ..files import write_json
from .options import (
    add_data,
    add_groups,
    add_models,
    add_tokenizer,
    add_train_text,
    add_unused,
    models_by_name,
    select,
    tokenizer_options,
)
from .outputs import add_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The models, and what is known of their tokens."""
    add_models(parser)
    add_data(parser)
    add_train_text(parser)
    add_unused(parser)
    add = parser.add_argument
    indicator = "what tokens are ranked by (default: the distance if the embeddings are tied and unused rows alike)"
    add("--indicator", choices=INDICATORS, help=indicator)
    threshold = "tokens of at most this value are listed (default: the largest value of a known unused token)"
    add("--threshold", type=float, metavar="X", help=threshold)
    add("--worst", type=int, default=20, metavar="N", help="tokens of each model to show")
    add_groups(parser)
    add_tokenizer(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> None:
    """Ranks the tokens of every model, prints both tables and writes the JSON file."""
    options = select(arguments, "data", "train_text", "unused", "indicator", "threshold", "groups")
    result = under_trained(models_by_name(arguments), tokenizer=tokenizer_options(arguments), **options)
    print(f"{result.table()}\n\n{worst_tokens(result, arguments.worst).table()}\n\n{CAUTION}\n\n{result.signature}")
    if arguments.json is not None:
        write_json(arguments.json, result.json())
