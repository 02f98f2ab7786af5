"""Finds tokens that are under-trained (glitch tokens), from the weights of models alone.

If the input embedding of a model is its output layer too, a token is the worse, the nearer its row is to the rows of
tokens that are known to be unused: `distance` is 1 minus the cosine to their sum. If the two are separate, or the
unused rows are not alike, a token is the worse, the smaller the `norm` of its row of the input embedding is. Tokens are
known to be unused if they are rows beyond the tokenizer, named as unused or reserved, bytes that no UTF-8 has, or
special tokens and fillers of a dictionary that do not occur; --unused names others. The threshold is the largest value
of a known unused token, or the value that 2% of the tokens do not exceed if fewer than three are known. The first table
has how many other tokens do not exceed it, the second the worst ones as text, with escapes for bytes that are no whole
character.

    agg-fairseq tokens models/gpt2 --text wiki.train.tokens
    agg-fairseq tokens runs/mle/checkpoint_best.pt runs/agg/checkpoint_best.pt --data data-bin/wikitext-2
"""

import argparse

from ..checkpoints.opening import open_models
from ..evaluation import under_trained
from ..evaluation.under_trained import CAUTION, worst_tokens
from ..files import write_json
from .options import add_json, add_models, add_options, check_json, options_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    add_models(parser)
    add_options(parser, under_trained)
    parser.add_argument("--worst", type=int, default=20, metavar="N", help="tokens of each model to show (default: 20)")
    add_json(parser)


def run(arguments: argparse.Namespace) -> None:
    """Ranks the tokens of every model, prints both tables and writes the JSON file."""
    check_json(arguments.json)
    models = open_models(arguments.inputs, arguments.name, arguments.matrix)
    result = under_trained(models, **options_of(under_trained, arguments))
    print(f"{result.table()}\n\n{worst_tokens(result, arguments.worst).table()}\n\n{CAUTION}\n\n{result.signature}")
    if arguments.json is not None:
        write_json(arguments.json, result.json())
