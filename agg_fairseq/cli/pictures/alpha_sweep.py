"""What the size of the rare group does: perplexity, Uniq and isotropy against α (Yu et al. 2022, Fig. 5)."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ...errors import UserError
from . import style
from .measured_files import read_measured

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUMMARY = "perplexity, Uniq and isotropy of models trained with different α, or with different rare fractions"
INPUT = "EVAL.json"
NAMED = False
PANELS = {"perplexity": "perplexity", "uniq": "Uniq", "isotropy": "I(W)"}
LINES = ("total", "rare")
OPTIONS = {"agg_rare_fraction": "rare fraction", "agg_alpha": "α"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """None of its own."""


def draw(arguments: argparse.Namespace) -> Figure:
    """A panel for each measure, a curve for all tokens and one for the rare ones; models without AGG as levels."""
    files = [read_measured(path, "eval-lm", "checkpoints") for path in arguments.inputs]
    checkpoints = [row for file in files for row in file["checkpoints"]]
    option, swept = _swept(checkpoints, arguments.inputs)
    others = [row for row in checkpoints if _criterion(row) != "agg"]
    figure, axes = style.new_figure(rows=len(LINES), columns=len(PANELS), width=4.0, height=3.0, sharex=True)
    for row, of_row in zip(LINES, axes, strict=True):
        for axis, (key, title) in zip(of_row, PANELS.items(), strict=True):
            values = [value[key][row] for _, value in swept]
            style.line(axis, 0, [x for x, _ in swept], values, "AGG", marked=True)
            for index, other in enumerate(others, 1):
                if other[key][row] is not None:
                    axis.axhline(other[key][row], color=style.COLORS[index % 6], linestyle="--", label=other["name"])
            style.finish(axis, title=f"{title}, {row}", xlabel=OPTIONS[option], legend=axis is axes[0][0])
    return figure


def _swept(checkpoints: Iterable[dict[str, Any]], paths: list[str]) -> tuple[str, list[tuple[float, dict[str, Any]]]]:
    """By what the rare group was chosen, and the models of AGG by its value."""
    gated = [row for row in checkpoints if _criterion(row) == "agg"]
    used = {_option(row) for row in gated}
    if len(gated) < 2 or len(used) > 1:
        mixed = ", some with --agg-alpha and some with --agg-rare-fraction" if len(used) > 1 else ""
        raise UserError(
            f"{', '.join(paths)}: found {len(gated)} models of AGG{mixed}; expected two or more, all by one"
        )
    option = used.pop()
    return option, sorted(((row["criterion"][option], row) for row in gated), key=lambda pair: pair[0])


def _criterion(row: dict[str, Any]) -> str | None:
    return (row.get("criterion") or {}).get("_name")


def _option(row: dict[str, Any]) -> str:
    return "agg_rare_fraction" if row["criterion"].get("agg_rare_fraction") else "agg_alpha"
