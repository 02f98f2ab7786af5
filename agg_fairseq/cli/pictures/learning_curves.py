"""Perplexity over the updates, of the training (smooth) and of a validation split (marked)."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ...errors import UserError
from ..naming import names_of
from ..training_log import read_log
from . import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUMMARY = "perplexity over the updates, training and validation"
INPUT = "LOG"
NAMED = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which validation split."""
    parser.add_argument("--valid-subset", default="valid", metavar="SPLIT", help="as in the training (default: valid)")


def draw(arguments: argparse.Namespace) -> Figure:
    """A panel for the training and one for the validation split, a curve per log in each."""
    names = names_of(arguments.inputs, arguments.name)
    figure, axes = style.new_figure(columns=2)
    tags = {"training": "train_inner", arguments.valid_subset: arguments.valid_subset}
    for axis, (title, tag) in zip(axes[0], tags.items(), strict=True):
        for index, (name, path) in enumerate(zip(names, arguments.inputs, strict=True)):
            entries = [entry for entry in read_log(path, tag) if "ppl" in entry]
            if not entries:
                raise UserError(f"{path}: found no ppl in its {tag!r} lines; expected a log of fairseq-train")
            updates, values = ([entry[key] for entry in entries] for key in ("num_updates", "ppl"))
            style.line(axis, index, updates, values, name, marked=tag != "train_inner")
        style.finish(axis, title=title, xlabel="updates", ylabel="perplexity", yscale="log")
    return style.finish_figure(figure)
