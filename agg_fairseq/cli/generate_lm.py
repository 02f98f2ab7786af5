"""Continues the prefixes of a split with a language model, and writes a JSON object per line.

The split is read as one stream of tokens, including its line ends, and cut into blocks of a prefix and its reference;
an incomplete block at the end is dropped. Each prefix is continued by as many tokens as its reference has, which may
include line ends. `prefix`, `continuation` and `reference` contain tokens of the dictionary, separated by spaces. The
defaults are the setting of F²-Softmax (EMNLP 2020, Sec. 4.1.5) with greedy decoding.

    agg-fairseq generate-lm data-bin/wikitext-103 --path runs/mle/checkpoint_best.pt --output mle.jsonl
    agg-fairseq generate-lm data-bin/wikitext-103 --path runs/mle/checkpoint_best.pt --output top10.jsonl --topk 10
"""

from __future__ import annotations

import argparse
import time

from ..checkpoints.fairseq_checkpoint import Checkpoint, checkpoint_file
from ..evaluation import generate_texts
from ..f2.decoupled_decoding import DECODINGS
from ..files import check_distinct, write_json
from .options import add_device, add_generation, add_split, check_json, options_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options; those that fairseq-generate has too have the same names."""
    parser.add_argument("data", help="folder written by fairseq-preprocess")
    parser.add_argument("--path", required=True, metavar="CKPT", help="checkpoint of a language model")
    parser.add_argument("--output", required=True, metavar="FILE", help="texts to write, one JSON object per line")
    add_split(parser, "continue")
    add_generation(parser)
    parser.add_argument(
        "--f2-decoding",
        choices=DECODINGS,
        help="how a factorized output layer uses the classes (default: as set in the checkpoint)",
    )
    parser.add_argument("--batch-size", type=int, default=64, metavar="B", help="texts at a time (default: 64)")
    parser.add_argument("--json", metavar="FILE", help="also write signature and counts to FILE")
    add_device(parser)


def run(arguments: argparse.Namespace) -> None:
    """Writes the texts, prints a summary and the signature, and writes the JSON file."""
    check_distinct(path=checkpoint_file(arguments.path), output=arguments.output, json=arguments.json)
    check_json(arguments.json, [arguments.data])
    started = time.monotonic()
    checkpoint = Checkpoint(arguments.path, training_state=False)
    result = generate_texts(checkpoint, **options_of(generate_texts, arguments))
    found = result.json()
    speed = found["generated_tokens"] / (time.monotonic() - started)
    print(f"{arguments.output}: {found['texts']} prefixes continued, {speed:.0f} tokens/s\n{result.signature}")
    if arguments.json:
        write_json(arguments.json, found)
