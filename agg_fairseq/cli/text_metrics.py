"""Compares generated texts with the human texts that follow the same prefixes, which are the row `human`.

KLD (in nats) and MS-Jaccard (MSJ) measure how close the continuations are to the references, and Self-BLEU (SB) how
similar they are to each other. Distinct (Dist) is the share of distinct n-grams within a text, Rep the share of texts
that end in a repeated phrase, and Uniq the number of distinct tokens. With --data, the table also has the shares of
frequent, medium, rare and very rare tokens, which make up the top 40%, next 30%, next 20% and last 10% of the training
split. All but KLD and Uniq are multiplied by 100 in the table, but not in --json.

    agg-fairseq text-metrics mle.jsonl agg.jsonl --data data-bin/wikitext-2

Reference: Choi et al. (2020), Sec. 4.1.5, Tables 1 to 3; Yu et al. (2022), Tables 5 and 15.
"""

import argparse

from ..evaluation import Result, text_metrics
from .options import add_inputs, add_options, call, files_by_name


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_inputs(parser, "FILE", "texts, as agg-fairseq generate-lm writes them", "its own, without ending")
    add_options(parser, "--data", "--json")


def run(arguments: argparse.Namespace) -> Result:
    return call(text_metrics, arguments, files_by_name(arguments, "stem"))
