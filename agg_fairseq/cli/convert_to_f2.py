"""Converts a model that was trained with the ordinary softmax into one with the factorized output layer.

The embeddings of the tokens are kept, so that inside each frequency class the new model predicts the same probabilities
as the old one. The embeddings of the classes are fitted on text of the training split, so that the joint distribution
is as close to the softmax as possible in KL divergence (a convex problem). The table shows how close it is on the
validation split; the row `mean`, with the mean of each class's tokens, is the starting point of the fit.

To convert a model and continue training it, run

    agg-fairseq convert-to-f2 --path runs/mle/checkpoint_best.pt --data data-bin/wikitext-2 --output f2.pt
    fairseq-train data-bin/wikitext-2 --user-dir "$(agg-fairseq user-dir)" --finetune-from-model f2.pt \\
      --arch transformer_lm_f2 --criterion f2_softmax …  (with the sizes and the tying of the old model)
"""

from __future__ import annotations

import argparse

from ..checkpoints.fairseq_checkpoint import Checkpoint, checkpoint_file
from ..f2.conversion import convert_to_f2
from ..f2.frequency_classes import ASSIGNMENTS
from ..files import check_distinct
from .options import add_device, add_json, check_json, options_of, print_result


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options; those of the models with the factorized layer have the same names."""
    parser.add_argument("--path", required=True, metavar="CKPT", help="a transformer or transformer_lm checkpoint")
    parser.add_argument("--data", required=True, help="folder written by fairseq-preprocess, with the training split")
    parser.add_argument("--output", required=True, metavar="F2", help="checkpoint to write")
    parser.add_argument(
        "--f2-assignment",
        dest="assignment",
        choices=ASSIGNMENTS,
        default="mefmax",
        help="how tokens are assigned to frequency classes (default: mefmax, which chooses the number of classes)",
    )
    parser.add_argument(
        "--f2-classes",
        dest="classes",
        type=int,
        default=0,
        metavar="C",
        help="number of classes; required by every assignment but mefmax, which refuses it",
    )
    parser.add_argument(
        "--positions", type=int, default=50_000, metavar="N", help="target positions to fit on (default: 50,000)"
    )
    parser.add_argument("--max-tokens", type=int, default=4096, metavar="N", help="tokens per batch (default: 4096)")
    add_json(parser)
    add_device(parser)


def run(arguments: argparse.Namespace) -> None:
    """Fits, writes the checkpoint, prints the table and writes the JSON file."""
    check_distinct(path=checkpoint_file(arguments.path), output=arguments.output, json=arguments.json)
    check_json(arguments.json, [arguments.data])
    checkpoint = Checkpoint(arguments.path, training_state=False)
    print_result(convert_to_f2(checkpoint, **options_of(convert_to_f2, arguments)), arguments.json)
