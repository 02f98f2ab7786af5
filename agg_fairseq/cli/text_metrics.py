"""Compares generated texts with the human texts that follow the same prefixes, which are the row `human`.

With --data, the table also has the shares of frequent, medium, rare and very rare tokens.

    agg-fairseq text-metrics mle.jsonl agg.jsonl --data data-bin/wikitext-2

Reference: Choi et al. (2020), Sec. 4.1.5, Tables 1 to 3; Yu et al. (2022), Tables 5 and 15.
"""

import argparse

from ..evaluation import text_metrics
from .options import add_inputs, add_parameters, calling

EXPLAINED = ("kld", "ms_jaccard", "self_bleu", "distinct", "repetition", "unique_tokens", "token_share")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_inputs(parser, "FILE", "texts, as agg-fairseq generate-lm writes them", "stem")
    add_parameters(parser, text_metrics)


run = calling(text_metrics)
