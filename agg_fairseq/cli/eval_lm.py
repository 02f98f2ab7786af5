"""Evaluates language models or translation models of fairseq, or language models of transformers.

The table shows PPL total (that of fairseq-eval-lm with the same options), PPL within each frequency
group of tokens, E/O of the rare group, and IsoScore; --full shows all of the columns below, and the
row `human`, of the text itself. The row `unigram` always predicts the training frequencies.
--calibrate valid fits one constant per group to the logits on that split, and adds the perplexity
and E/O with them. A translation model scores the target side. Models of transformers whose
vocabularies differ are compared by PPL per word and per byte alone.

    agg-fairseq eval-lm runs/mle/checkpoint_best.pt runs/agg/checkpoint_best.pt --data data-bin/wikitext-2
    agg-fairseq eval-lm runs/gpt2-mle runs/gpt2-agg --text test.txt --train-text train.txt

Reference: Yu et al. (2022), Tables 1–3.
"""

import argparse
from dataclasses import replace
from typing import Any

from ..columns import CALIBRATED, COMPARED, MOVED, NEXT_TOKENS, PER_TEXT
from ..errors import UserError
from ..names import LISTED_GROUPS, OCCURRENCE_GROUPS
from .options import Files, Function, add_option, add_parameters, descriptions, given_options

EXPLAINED = (*NEXT_TOKENS, *PER_TEXT, *CALIBRATED, *MOVED)
MODELS = Files("MODEL", "checkpoints of fairseq-train, or models of transformers")
PERPLEXITY = Function("evaluation.perplexity", "perplexity")
BINARIZED_TEXT = Function("evaluation.scoring", "BinarizedText")
PLAIN_TEXT = Function("evaluation.scoring", "PlainText")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    MODELS.add(parser)
    add_option(parser, "data")
    add_option(parser, "json")
    add_parameters(parser, BINARIZED_TEXT)
    text = "text in UTF-8 to score, instead of DATA, for models of transformers"
    parser.add_argument("--text", metavar="FILE", help=text)
    add_option(parser, "train_text")
    add_option(parser, "bos", descriptions(PLAIN_TEXT.source)["bos"])
    add_parameters(parser, PERPLEXITY)
    shown = {**COMPARED, **PER_TEXT, **CALIBRATED, **MOVED}
    for metric, keys in shown.items():
        if "rare" in keys:
            shown[metric] = (*keys, *OCCURRENCE_GROUPS, *LISTED_GROUPS)
    shown["perplexity"] = ("total", OCCURRENCE_GROUPS[-1], LISTED_GROUPS[-1])
    parser.add_argument(
        "--full", dest="columns", action="store_const", const=None, default=shown, help="print all columns"
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> Any:
    options = given_options(PERPLEXITY, arguments)
    text, field = find_text(arguments)
    from ..checkpoints import open_models

    if arguments.calibrate is not None:
        options["calibrate"] = replace(text, **{field: arguments.calibrate})
    if arguments.moved_from is not None:
        (options["moved_from"],) = open_models([arguments.moved_from]).values()
    if arguments.columns is not None and arguments.json is None:  # of what is not shown
        options["geometry"] = ["isoscore"]
    options["text"] = text
    return PERPLEXITY(open_models(arguments.inputs, arguments.name), **options)


def find_text(arguments: argparse.Namespace) -> tuple[Any, str]:
    """The text to score, and its field that --calibrate has another value of."""
    length, train_text, bos = arguments.tokens_per_sample, arguments.train_text, arguments.bos
    of_data = (arguments.context_window, arguments.max_tokens)
    if arguments.data is not None and arguments.text is train_text is None and not bos:
        return BINARIZED_TEXT(arguments.data, arguments.split, length, *of_data), "split"
    if arguments.data is None and arguments.text is not None and of_data == (0, None):
        return PLAIN_TEXT(arguments.text, train_text, length, bos), "text"
    raise UserError(
        "found neither --data nor --text, or options of both; expected --data, to which "
        "--context-window and --max-tokens belong, or --text, with --train-text and --bos"
    )
