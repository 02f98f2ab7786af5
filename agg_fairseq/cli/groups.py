"""Shows how much of a text is rare, before anything is trained.

A line per frequency group: its number of types, the fewest and the most occurrences of a type in the training text, and
its share of the targets of each split. The last line has the types that `--criterion agg --agg-rare-fraction F` treats
as rare. With --tokens-per-update, the last column says in how many updates a type of the group occurs once, on average:
in a window of K updates, it occurs K divided by that many times.

    agg-fairseq groups data-bin/wikitext-2 --tokens-per-update 1024
    agg-fairseq groups --text train.txt --tokenizer models/gpt2 --tokens-per-update 500000
"""

from __future__ import annotations

import argparse

from ..evaluation import group_shares
from .options import add_grouping, add_json, check_json, print_result


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("data", nargs="?", help="folder written by fairseq-preprocess, with the training split")
    parser.add_argument("--text", metavar="FILE", help="instead of DATA: the training text, in UTF-8")
    parser.add_argument("--tokenizer", metavar="PATH", help="with --text: tokenizer.json, or the folder that it is in")
    parser.add_argument(
        "--others", nargs="+", metavar="SPLIT", help="further splits, or files with --text (default: valid, test)"
    )
    parser.add_argument("--tokens-per-update", type=int, metavar="N", help="target tokens of an update, on all workers")
    parser.add_argument(
        "--rare-fraction",
        type=float,
        default=0.3,
        metavar="F",
        help="--agg-rare-fraction of the last line (default: 0.3)",
    )
    add_grouping(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> None:
    """Counts, prints the table and writes the JSON file."""
    check_json(arguments.json, [arguments.data, arguments.text, arguments.tokenizer])
    result = group_shares(
        arguments.data,
        text=arguments.text,
        tokenizer=arguments.tokenizer,
        others=arguments.others,
        tokens_per_update=arguments.tokens_per_update,
        rare_fraction=arguments.rare_fraction,
        groups=arguments.groups,
    )
    print_result(result, arguments.json)
