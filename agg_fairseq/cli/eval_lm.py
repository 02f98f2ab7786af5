"""Evaluates language models side by side, by frequency group of the tokens.

Tokens are frequent, medium or rare by their frequency in the binarized training split (see --groups). For each group,
the table has the perplexity over its targets (PPL), and the number of its tokens that the model predicts with the
highest probability at some position (Uniq). `I(W)` is the isotropy of the output embedding (1 is isotropic), and `S(W)`
is its mean cosine (0 is isotropic). `I(W−μ)` is the isotropy after the mean row μ has been subtracted from each row,
`mean share` the length of μ as a share of the mean length of the rows, and `IsoScore` the share of the dimensions that
the rows use evenly (1 is isotropic). `agg-fairseq isotropy --help` explains these measures. `E/O rare`, expected over
observed, is the sum of the probabilities that rare tokens get at all positions, divided by the number of rare targets:
1 is calibrated, and above 1 the model expects rare tokens too often. The total perplexity equals that of
fairseq-eval-lm with the same options.

    agg-fairseq eval-lm data-bin/wikitext-2 --path runs/mle/checkpoint_best.pt runs/agg/checkpoint_best.pt
"""

from __future__ import annotations

import argparse

from ..awd_lstm.continuous_cache import CacheOptions
from ..checkpoints.fairseq_checkpoint import open_checkpoints
from ..errors import UserError
from ..evaluation import perplexity
from ..evaluation.perplexity import BREAK_MODES
from .options import add_device, add_grouping, add_json, add_names, check_json, print_result

THETA, LAMBDA = 0.662, 0.1279
"""Of the authors of AWD-LSTM for WikiText-2, with 3,785 positions."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options; those that fairseq-eval-lm has too have the same names."""
    parser.add_argument("data", help="folder written by fairseq-preprocess, with the training split")
    parser.add_argument("--path", nargs="+", required=True, metavar="CKPT", help="checkpoints, compared side by side")
    add_names(parser)
    parser.add_argument("--gen-subset", default="test", metavar="SPLIT", help="split to evaluate (default: test)")
    parser.add_argument(
        "--tokens-per-sample", type=int, metavar="T", help="length of a block (default: that of the training)"
    )
    parser.add_argument(
        "--sample-break-mode",
        choices=BREAK_MODES,
        default="none",
        help="how the split is cut into blocks (default: none, blocks of T tokens across lines)",
    )
    parser.add_argument(
        "--context-window", type=int, default=0, metavar="C", help="tokens of context before each block (default: 0)"
    )
    parser.add_argument(
        "--max-tokens", type=int, metavar="N", help="tokens per batch (default: 2048, or T if it is larger)"
    )
    parser.add_argument(
        "--cache-size",
        type=int,
        metavar="N",
        help="mix the model with a continuous cache of the last N positions (Grave et al. 2017; default: no cache)",
    )
    parser.add_argument(
        "--cache-theta", type=float, metavar="THETA", help=f"how sharply it compares features (default: {THETA})"
    )
    parser.add_argument(
        "--cache-lambda", type=float, metavar="SHARE", help=f"its share in the mixture, 0 to 1 (default: {LAMBDA})"
    )
    add_grouping(parser)
    add_json(parser)
    add_device(parser)


def run(arguments: argparse.Namespace) -> None:
    """Evaluates every checkpoint, prints the table and writes the JSON file."""
    check_json(arguments.json, [*arguments.path, arguments.data])
    size, theta, share = arguments.cache_size, arguments.cache_theta, arguments.cache_lambda
    if size is None and (theta is not None or share is not None):
        raise UserError("found --cache-theta or --cache-lambda without --cache-size; expected the size of a cache, too")
    cache = CacheOptions(size, THETA if theta is None else theta, LAMBDA if share is None else share)
    result = perplexity(
        open_checkpoints(arguments.path, arguments.name),
        arguments.data,
        split=arguments.gen_subset,
        tokens_per_sample=arguments.tokens_per_sample,
        sample_break_mode=arguments.sample_break_mode,
        context_window=arguments.context_window,
        max_tokens=arguments.max_tokens,
        groups=arguments.groups,
        cache=None if size is None else cache,
        device=arguments.device,
    )
    print_result(result, arguments.json)
