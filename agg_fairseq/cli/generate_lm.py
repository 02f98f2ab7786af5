"""Continues the prefixes of a split with a language model, and writes a JSON object per line.

The split is read as one stream of tokens and cut into blocks of a prefix and its reference; an incomplete block at the
end is dropped. Each prefix is continued by as many tokens as its reference has. `prefix`, `continuation` and
`reference` contain tokens of the dictionary, separated by spaces. The defaults are the paper's, with greedy decoding.

    agg-fairseq generate-lm runs/mle/checkpoint_best.pt --data data-bin/wikitext-103 -o mle.jsonl
    agg-fairseq generate-lm runs/mle/checkpoint_best.pt --data data-bin/wikitext-103 -o top10.jsonl --topk 10

Reference: Choi et al. (2020), Sec. 4.1.5; Fan et al. (2018) for top-k sampling.
"""

import argparse

from ..evaluation import generate_texts
from ..f2.decoupled_decoding import DECODINGS
from .options import add_model, add_options, calling, open_model
from .outputs import add_output


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    add_options(parser, "--data", required=True, help="folder of fairseq-preprocess, with the split")
    add_options(parser, "--split")
    add_output(parser, "texts")
    add = parser.add_argument
    add("--prefix-length", type=int, default=50, metavar="N", help="tokens that the model is given")
    add("--length", type=int, default=100, metavar="N", help="tokens of a continuation and of a reference")
    add_options(parser, "--max-texts")
    add("--topk", type=int, metavar="K", help="draw each token from the K most probable ones (default: take the first)")
    add("--seed", type=int, default=1, metavar="N", help="of the random numbers, 0 to 2⁶³ − 1")
    decoding = "how a factorized output layer goes from class to token (default: as the checkpoint says)"
    add("--f2-decoding", choices=DECODINGS, help=decoding)
    batch_size = "texts at a time; changes no text, except those of sample-class, which the model itself draws"
    add("--batch-size", type=int, default=64, metavar="N", help=batch_size)
    add_options(parser, "--device", "--json")


run = calling(generate_texts, open_model)
