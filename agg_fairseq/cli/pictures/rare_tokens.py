"""Size of the rare group over the updates (Yu et al. 2022, Fig. 4)."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ...errors import UserError
from ..naming import numbered
from ..training_log import read_log
from . import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUMMARY = "size of the rare group over the updates"
INPUT = "LOG"
NAMED = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """None of its own."""


def draw(arguments: argparse.Namespace) -> Figure:
    """A curve per log."""
    figure, axes = style.new_figure()
    for index, name, path in numbered(arguments.inputs, arguments.name):
        entries = [entry for entry in read_log(path) if "rare_tokens" in entry]
        if not entries:
            raise UserError(f"{path}: found no rare_tokens in it; expected the log of a run with --criterion agg")
        updates, sizes = ([entry[key] for entry in entries] for key in ("num_updates", "rare_tokens"))
        style.line(axes[0][0], index, updates, sizes, name)
    style.finish(axes[0][0], xlabel="updates", ylabel="rare tokens")
    axes[0][0].set_ylim(0, 1.05 * axes[0][0].dataLim.ymax or 1)
    return style.finish_figure(figure)
