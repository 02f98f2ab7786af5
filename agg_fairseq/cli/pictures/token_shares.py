"""The share of each frequency group in generated texts (Choi et al. 2020, Fig. 2)."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from ...errors import UserError
from ...metrics.groups import MASS_GROUPS
from ..naming import HUMAN
from . import style
from .measured_files import MeasuredFile, human_of, read_measured

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUMMARY = "share of frequent, medium, rare and very rare tokens in generated texts"
INPUT = "METRICS.json"
NAMED = False


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """None of its own."""


def draw(arguments: argparse.Namespace) -> Figure:
    """A group of bars for each frequency group, a bar for each text and one, in dark grey, for the human text."""
    texts, human = _shares(arguments.inputs)
    figure, axes = style.new_figure(width=7.0)
    width = 0.8 / (len(texts) + 1)
    for index, (name, shares) in enumerate([*texts.items(), (HUMAN, human)]):
        places = [group + (index - len(texts) / 2) * width for group in range(len(MASS_GROUPS))]
        number = index if index < len(texts) else None
        style.bars(axes[0][0], number, places, [100 * share for share in shares], width, name)
    axes[0][0].set_xticks(range(len(MASS_GROUPS)), MASS_GROUPS)
    style.finish(axes[0][0], ylabel="% of tokens")
    return style.finish_figure(figure)


def _shares(paths: list[str]) -> tuple[dict[str, list[float]], list[float]]:
    """The shares of each text by its name, and those of the human text; in the order of `MASS_GROUPS`."""
    files = [read_measured(path, "text-metrics") for path in paths]
    texts: dict[str, list[float]] = {}
    for measured in files:
        for row in measured.rows("files"):
            if row["name"] in texts:
                raise UserError(
                    f"{measured.path}: found the name {row['name']!r} again; expected each once; see --name of "
                    "text-metrics"
                )
            texts[row["name"]] = _of_row(measured, row)
    return texts, human_of(files, _of_row)


def _of_row(measured: MeasuredFile, row: dict[str, Any]) -> list[float]:
    if not row.get("shares"):
        raise UserError(f"{measured.path}: found no shares of {row['name']}; run text-metrics with --data")
    return [measured.number(row, "shares", group) for group in MASS_GROUPS]
