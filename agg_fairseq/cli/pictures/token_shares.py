"""The share of each frequency group in generated texts (Choi et al. 2020, Fig. 2)."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ...errors import UserError
from ...metrics.mass_groups import MASS_GROUPS
from . import style
from .measured_files import read_measured

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUMMARY = "share of frequent, medium, rare and very rare tokens in generated texts"
INPUT = "METRICS.json"
NAMED = False


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """None of its own."""


def draw(arguments: argparse.Namespace) -> Figure:
    """A group of bars for each frequency group, a bar for each text and one for the human text."""
    bars = _shares(arguments.inputs)
    figure, axes = style.new_figure(width=7.0)
    width = 0.8 / len(bars)
    for index, (name, shares) in enumerate(bars.items()):
        places = [group + (index - (len(bars) - 1) / 2) * width for group in range(len(MASS_GROUPS))]
        style.bars(axes[0][0], index, places, [100 * shares[group] for group in MASS_GROUPS], width, name)
    axes[0][0].set_xticks(range(len(MASS_GROUPS)), MASS_GROUPS)
    style.finish(axes[0][0], ylabel="% of tokens")
    return figure


def _shares(paths: list[str]) -> dict[str, dict[str, float]]:
    bars: dict[str, dict[str, float]] = {}
    for path in paths:
        measured = read_measured(path, "text-metrics", "files")
        for row in [*measured["files"], {"name": "human", **measured["human"]}]:
            if not row.get("shares"):
                raise UserError(f"{path}: found no shares of {row['name']}; run text-metrics with --data")
            bars[row["name"]] = row["shares"]
    return {**{name: shares for name, shares in bars.items() if name != "human"}, "human": bars["human"]}
