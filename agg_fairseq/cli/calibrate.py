"""Calibrates the frequency groups of a trained model: rare tokens are then expected as often as they appear.

One offset per group (frequent, medium, rare) is fitted on the validation split and added to the logits of its tokens.
It is saved as the bias of the output layer: the result is a checkpoint of a model with a log-unigram bias, which
fairseq-eval-lm and fairseq-generate load with --user-dir. The table shows the split before and after. Only two numbers
are fitted, so the gain carries over to other text; nothing changes within a group.

    agg-fairseq calibrate runs/agg/checkpoint_best.pt --data data-bin/wikitext-2 --output runs/agg/calibrated.pt
"""

from __future__ import annotations

import argparse

from ..checkpoints.fairseq_checkpoint import Checkpoint, checkpoint_file
from ..evaluation.calibration import calibrate
from ..files import check_distinct
from .options import add_device, add_json, check_json, options_of, print_result


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("path", metavar="CKPT", help="a transformer or transformer_lm checkpoint")
    parser.add_argument("--data", required=True, help="folder written by fairseq-preprocess, with the training split")
    parser.add_argument("--output", required=True, metavar="FILE", help="checkpoint to write")
    parser.add_argument("--split", default="valid", help="the split to fit on (default: valid)")
    parser.add_argument("--max-tokens", type=int, metavar="N", help="tokens per batch (default: 2048)")
    add_json(parser)
    add_device(parser)


def run(arguments: argparse.Namespace) -> None:
    """Fits, writes the checkpoint, prints the table and writes the JSON file."""
    check_distinct(path=checkpoint_file(arguments.path), output=arguments.output, json=arguments.json)
    check_json(arguments.json, [arguments.data])
    checkpoint = Checkpoint(arguments.path, training_state=False)
    print_result(calibrate(checkpoint, **options_of(calibrate, arguments)), arguments.json)
