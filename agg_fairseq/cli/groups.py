"""Shows how much of a text is rare, before anything is trained.

A line per frequency group: its number of types, the fewest and the most occurrences of a type in the training text, and
its share of the targets of each split. The last line has the types that `--criterion agg --agg-rare-fraction F` treats
as rare, if a window of its counts has the frequencies of the training text. With --tokens-per-update, two columns more:
in how many updates N a type of the group occurs once, on average, so that it occurs K/N times in a window of K updates;
and 1 − 0.2/N, the least β₂ with which Adam does not push such a type away more than 11% too strongly
(docs/which-cure.md).

    agg-fairseq groups data-bin/wikitext-2 --tokens-per-update 1024
    agg-fairseq groups train.txt --tokenizer models/gpt2 --tokens-per-update 500000

Reference: Yu et al. (2022), Sec. 3.1; Yu et al. (2021), Sec. 2.1.
"""

import argparse

from ..evaluation import Result, group_shares
from .options import add_options, call


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    data = "folder of fairseq-preprocess, with the training split; or a training text in UTF-8, with --tokenizer"
    add("data", metavar="DATA", help=data)
    add("--tokenizer", metavar="FILE", help="tokenizer.json of Hugging Face for a text, or the folder that it is in")
    add("--tokens-per-update", type=int, metavar="N", help="target tokens of an update, on all workers")
    add("--rare-fraction", type=float, default=0.3, metavar="X", help="--agg-rare-fraction, for the last line")
    add_options(parser, "--groups", "--json")


def run(arguments: argparse.Namespace) -> Result:
    return call(group_shares, arguments)
