"""Evaluates language models or translation models of fairseq, or language models of transformers, side by side.

Tokens are frequent, medium or rare by their frequency in the training text (see --groups). The table shows what models
are compared by:

  PPL total     perplexity of all targets, that of fairseq-eval-lm with the same options
  PPL within …  perplexity of the targets of a group among the tokens of that group: does the model know which rare
                token comes? PPL = PPL group x PPL within, where PPL group says whether it expects the right group. A
                constant that is added to the logits of all rare tokens changes PPL and PPL group, and not PPL within
  E/O rare      expected over observed: the sum of the probabilities of rare tokens, divided by the number of rare
                targets. Above 1, rare tokens are expected too often. The row `human` has that of the training
                frequencies, which need not be those of the text
  IsoScore      the share of the dimensions that the output embeddings use evenly (1 is isotropic)

--calibrate valid fits one constant per group to the logits on that split, and adds the perplexity and E/O with them.
--full shows all columns: also PPL and PPL group, Uniq (the number of tokens that are the most probable one somewhere),
and the isotropy I(W), mean cosine S(W), I(W−μ) and mean share of the output embedding, as `agg-fairseq isotropy --help`
explains them.

    agg-fairseq eval-lm data-bin/wikitext-2 --path runs/mle/checkpoint_best.pt runs/agg/checkpoint_best.pt
    agg-fairseq eval-lm --text test.txt --train-text train.txt --path runs/gpt2-mle runs/gpt2-agg
"""

from __future__ import annotations

import argparse

from ..awd_lstm.continuous_cache import CacheOptions
from ..checkpoints import open_models
from ..errors import UserError
from ..evaluation import perplexity
from ..evaluation.perplexity import COMPARED
from ..evaluation.scoring import BREAK_MODES
from .options import add_device, add_grouping, add_json, add_names, check_json, print_result

THETA, LAMBDA = 0.662, 0.1279
"""Of the authors of AWD-LSTM for WikiText-2, with 3,785 positions."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options; those that fairseq-eval-lm has too have the same names."""
    parser.add_argument(
        "data", nargs="?", help="folder written by fairseq-preprocess, with the training split, for models of fairseq"
    )
    parser.add_argument("--text", metavar="FILE", help="text to score, in UTF-8, for models of transformers")
    parser.add_argument(
        "--train-text", metavar="FILE", help="text in which the frequencies are counted, with --text (default: that)"
    )
    parser.add_argument("--path", nargs="+", required=True, metavar="CKPT", help="models, compared side by side")
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
    parser.add_argument(
        "--calibrate",
        metavar="SPLIT",
        help="fit one offset per group on this split, or file with --text, and add the calibrated columns",
    )
    parser.add_argument("--full", action="store_true", help="print all columns")
    add_grouping(parser)
    add_json(parser)
    add_device(parser)


def run(arguments: argparse.Namespace) -> None:
    """Evaluates every checkpoint, prints the table and writes the JSON file."""
    check_json(arguments.json, [*arguments.path, arguments.data, arguments.text, arguments.train_text])
    size, theta, share = arguments.cache_size, arguments.cache_theta, arguments.cache_lambda
    if size is None and (theta is not None or share is not None):
        raise UserError("found --cache-theta or --cache-lambda without --cache-size; expected the size of a cache, too")
    cache = CacheOptions(size, THETA if theta is None else theta, LAMBDA if share is None else share)
    result = perplexity(
        open_models(arguments.path, arguments.name),
        arguments.data,
        split=arguments.gen_subset,
        text=arguments.text,
        train_text=arguments.train_text,
        calibrate=arguments.calibrate,
        tokens_per_sample=arguments.tokens_per_sample,
        sample_break_mode=arguments.sample_break_mode,
        context_window=arguments.context_window,
        max_tokens=arguments.max_tokens,
        groups=arguments.groups,
        cache=None if size is None else cache,
        device=arguments.device,
    )
    print_result(result if arguments.full else result.select(COMPARED), arguments.json)
