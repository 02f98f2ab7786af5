"""What the size of the rare group does: perplexity, Uniq and isotropy against α (Yu et al. 2022, Fig. 5)."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...errors import UserError
from . import style
from .measured_files import MeasuredFile, read_measured

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUMMARY = "perplexity, Uniq and isotropy of models trained with different α, or with different rare fractions"
INPUT = "EVAL.json"
NAMED = False
PANELS = {"perplexity": "perplexity", "uniq": "Uniq", "isotropy": "I(W)"}
LINES = ("total", "rare")
CURVE = "AGG"
OPTIONS = {"agg_rare_fraction": "rare fraction", "agg_alpha": "α"}

Values = dict[tuple[str, str], float]
"""By measure and line; NaN where a measure is not defined."""


@dataclass(frozen=True)
class _Model:
    """A row of a file of eval-lm; without `option` it is no model of AGG."""

    path: str
    name: str
    values: Values
    option: str = ""
    x: float = math.nan


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """None of its own."""


def draw(arguments: argparse.Namespace) -> Figure:
    """A panel for each measure, a curve for all tokens and one for the rare ones; models without AGG as levels."""
    models = [model for path in arguments.inputs for model in _models(path)]
    option, swept = _swept(models, arguments.inputs)
    levels = _levels(models)
    figure, axes = style.new_figure(rows=len(LINES), columns=len(PANELS), width=4.0, height=3.0, sharex=True)
    for row, of_row in zip(LINES, axes, strict=True):
        for axis, (key, title) in zip(of_row, PANELS.items(), strict=True):
            style.line(axis, 0, [x for x, _ in swept], [values[key, row] for _, values in swept], CURVE, marked=True)
            for index, (name, values) in enumerate(levels.items()):
                style.level(axis, index, values[key, row], name)
            style.finish(axis, title=f"{title}, {row}")
    for axis in axes[-1]:
        axis.set_xlabel(OPTIONS[option])
    return style.finish_figure(figure)


def _models(path: str) -> Iterator[_Model]:
    """The rows of a file."""
    measured = read_measured(path, "eval-lm")
    for row in measured.rows("checkpoints"):
        values = {(key, line): measured.number(row, key, line) for key in PANELS for line in LINES}
        if _criterion(measured, row).get("_name") != "agg":
            yield _Model(path, row["name"], values)
        else:
            option = "agg_rare_fraction" if row["criterion"].get("agg_rare_fraction") else "agg_alpha"
            x = measured.number(row, "criterion", option)
            if math.isnan(x):
                raise UserError(f"{path}: found no {option} of {row['name']!r}; expected a number")
            yield _Model(path, row["name"], values, option, x)


def _criterion(measured: MeasuredFile, row: dict[str, Any]) -> dict[str, Any]:
    """Its options; none where it is not known."""
    criterion = row.get("criterion") or {}
    if not isinstance(criterion, dict):
        found = f"a {type(criterion).__name__} as criterion of {row['name']!r}"
        raise UserError(f"{measured.path}: found {found}; expected a file of agg-fairseq eval-lm --json")
    return criterion


def _swept(models: Sequence[_Model], paths: list[str]) -> tuple[str, list[tuple[float, Values]]]:
    """By what the rare group was chosen, and what was measured of the models of AGG by its value."""
    gated = [model for model in models if model.option]
    used = {model.option for model in gated}
    if len(gated) < 2 or len(used) > 1:
        mixed = ", some with --agg-alpha and some with --agg-rare-fraction" if len(used) > 1 else ""
        raise UserError(
            f"{', '.join(paths)}: found {len(gated)} models of AGG{mixed}; expected two or more, all by one"
        )
    return gated[0].option, sorted(((model.x, model.values) for model in gated), key=lambda pair: pair[0])


def _levels(models: Sequence[_Model]) -> dict[str, Values]:
    """What was measured of the models without AGG, by name."""
    levels: dict[str, Values] = {}
    for model in models:
        if not model.option:
            if model.name == CURVE or levels.get(model.name, model.values) != model.values:
                expected = "expected a name for each model without AGG; see --name of eval-lm"
                raise UserError(f"{model.path}: found the name {model.name!r} again; {expected}")
            levels[model.name] = model.values
    return levels
