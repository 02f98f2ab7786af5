"""Continues the prefixes of a split with a language model, and writes a JSON object per line.

The split is read as one stream of tokens, including its line ends, and cut into blocks of a prefix and its reference;
an incomplete block at the end is dropped. Each prefix is continued by as many tokens as its reference has. `prefix`,
`continuation` and `reference` contain tokens of the dictionary, separated by spaces. The defaults are the setting of
F²-Softmax (EMNLP 2020, Sec. 4.1.5) with greedy decoding.

    agg-fairseq generate-lm runs/mle/checkpoint_best.pt --data data-bin/wikitext-103 -o mle.jsonl
    agg-fairseq generate-lm runs/mle/checkpoint_best.pt --data data-bin/wikitext-103 -o top10.jsonl --topk 10

Reference: Choi et al. (2020), Sec. 4.1.5; Fan et al. (2018) for top-k sampling.
"""

import argparse

from ..evaluation import generate_texts
from ..f2.decoupled_decoding import DECODINGS
from .options import GENERATION, add_model, add_options, open_model, select
from .outputs import add_output, print_result


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    add_options(parser, "--data", required=True, help="folder of fairseq-preprocess, with the split")
    add_options(parser, "--split")
    add_output(parser, "texts")
    add_options(parser, *GENERATION)
    decoding = "how a factorized output layer goes from class to token (default: as the checkpoint says)"
    parser.add_argument("--f2-decoding", choices=DECODINGS, help=decoding)
    batch_size = "texts at a time; changes no text, except those of sample-class, which the model itself draws"
    parser.add_argument("--batch-size", type=int, default=64, metavar="N", help=batch_size)
    add_options(parser, "--device", "--json")


def run(arguments: argparse.Namespace) -> None:
    names = ("split", "prefix_length", "length", "max_texts", "topk", "seed", "f2_decoding", "batch_size", "device")
    options = select(arguments, "data", "output", *names)
    print_result(generate_texts(open_model(arguments), **options), arguments.json)
