"""Shows the tokens whose output embeddings are nearest to that of a word, by cosine.

The table has a row for each word and model, with the nearest tokens in order and the cosine of each; `†` marks
tokens that are rare in the training text. The vector of a word of several tokens is the mean of their embeddings. The
tokens of the word itself, special tokens and the entries by which fairseq pads a dictionary are left out. The
dictionary of a translation model is that of the target side; with a joined dictionary, words of both languages can be
looked up and found. Without --words, three words are shown: the most frequent rare tokens of four letters or more that
can be words. A model of transformers splits words by its own tokenizer.json; it needs --words or --text.

    agg-fairseq neighbors runs/mle/checkpoint_best.pt runs/agg/checkpoint_best.pt --data data-bin/wikitext-2 \\
        --words homepage Werewolf policymakers
    agg-fairseq neighbors models/gpt2 --words homepage Werewolf policymakers
"""

from __future__ import annotations

import argparse

from ..checkpoints.opening import open_models
from ..evaluation import neighbors
from .options import (
    add_frequencies,
    add_grouping,
    add_json,
    add_models,
    add_tokenizer,
    check_json,
    options_of,
    print_result,
    tokenizer_of,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    add_models(parser)
    add_frequencies(parser)
    parser.add_argument(
        "--words", nargs="+", metavar="WORD", help="words whose neighbors are shown (default: three rare words)"
    )
    parser.add_argument("--topk", type=int, default=5, metavar="K", help="neighbors of each word (default: 5)")
    add_grouping(parser)
    add_tokenizer(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> None:
    """Finds the neighbors, prints the table and writes the JSON file."""
    tokenizer = tokenizer_of(arguments)
    files = [*arguments.inputs, arguments.data, arguments.text, *tokenizer.files.values()]
    check_json(arguments.json, files)
    models = open_models(arguments.inputs, arguments.name, arguments.matrix)
    print_result(neighbors(models, tokenizer=tokenizer, **options_of(neighbors, arguments)), arguments.json)
