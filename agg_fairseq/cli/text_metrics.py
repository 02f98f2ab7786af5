"""Compares generated texts with the human texts that follow the same prefixes.

Each FILE has a JSON object per line with the strings `prefix`, `continuation` and `reference`, tokens separated by
spaces, as `agg-fairseq generate-lm` writes them; all files must have the same references in the same order. The table
has the measures of the F²-Softmax paper for the continuations of each file, and for the references as `human`. KLD (in
nats) and MS-Jaccard (MSJ) measure how close the continuations are to the references, and Self-BLEU (SB) how similar
they are to each other. Three measures tell how varied they are: Distinct (Dist), the share of distinct n-grams within a
text; Rep, the share of texts that end in a repeated phrase; and Uniq, the number of distinct tokens. With --data, the
table also has the shares of frequent, medium, rare and very rare tokens, which make up the top 40%, next 30%, next 20%
and last 10% of the training split. All measures but KLD and Uniq are multiplied by 100 in the table, but not in --json.
An undefined measure, such as the Self-BLEU of a single text, is a dash, and null in --json.

    agg-fairseq text-metrics mle.jsonl agg.jsonl --data data-bin/wikitext-2
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ..evaluation import text_metrics
from ..names import unique_names
from .options import add_json, add_names, check_json, options_of, print_result


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options; those that eval-lm has too have the same names."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="generated texts, compared side by side")
    add_names(parser, "file", "its own, without ending")
    parser.add_argument(
        "--data", metavar="DATA", help="folder written by fairseq-preprocess, with the training split, for the shares"
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> None:
    """Measures every file and the references, prints the table and writes the JSON file."""
    check_json(arguments.json, [*arguments.files, arguments.data])
    names = unique_names(arguments.files, arguments.name, "stem")
    texts = dict(zip(names, map(Path, arguments.files), strict=True))
    print_result(text_metrics(texts, **options_of(text_metrics, arguments)), arguments.json)
