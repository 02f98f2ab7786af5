"""Finds the tokens whose output embeddings are nearest to that of a word, by cosine, in float64.

The table has a row for each word and model, with the nearest tokens in order and the cosine of each; † marks tokens
that are rare in the training text. The vector of a word of several tokens is the mean of their embeddings. The tokens
of the word itself, special tokens and the entries by which fairseq pads a dictionary are left out. The dictionary of a
translation model is that of the target side. A model of transformers splits words by its own tokenizer.json; it needs
--words or --train-text.

    agg-fairseq neighbors runs/mle/checkpoint_best.pt runs/agg/checkpoint_best.pt --data data-bin/wikitext-2 \\
        --words homepage Werewolf policymakers
    agg-fairseq neighbors models/gpt2 --words homepage Werewolf policymakers

Reference: Yu et al. (2022), Tables 13 and 14; Yu et al. (2021), Tables 10 to 12.
"""

import argparse

from ..evaluation import neighbors
from .options import (
    add_data,
    add_groups,
    add_models,
    add_tokenizer,
    add_train_text,
    add_words,
    models_by_name,
    select,
    tokenizer_options,
)
from .outputs import add_json, print_result


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The models, the words, and how they are split."""
    add_models(parser)
    add_data(parser)
    add_train_text(parser)
    add_words(parser)
    parser.add_argument("--topk", type=int, default=5, metavar="K", help="neighbors of each word")
    add_groups(parser)
    add_tokenizer(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> None:
    """Finds the neighbors, and prints the table."""
    options = select(arguments, "data", "train_text", "words", "topk", "groups")
    result = neighbors(models_by_name(arguments), tokenizer=tokenizer_options(arguments), **options)
    print_result(result, arguments.json)
