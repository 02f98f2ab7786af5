"""What the number of classes does to generated texts, by how tokens are assigned to them (Choi et al. 2020, Fig. 3).

Texts whose names end in equal-frequency-N or equal-token-N, N the number of classes, are the points of two curves; all
others are horizontal lines. See --name of text-metrics.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...errors import UserError
from ..naming import HUMAN
from . import style
from .measured_files import MeasuredFile, human_of, read_measured

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUMMARY = "likeness of generated texts to human ones and to each other, by number of frequency classes"
INPUT = "METRICS.json"
NAMED = False
PANELS = {"ms_jaccard": ("MS-Jaccard-2 × 100", 100), "self_bleu": ("Self-BLEU-2 × 100", 100), "kld": ("KLD in nats", 1)}
"""By measure its title, and what it is multiplied by."""
BY_ORDER = ("ms_jaccard", "self_bleu")
"""Lists, from order 1 on."""
ORDER = 2
CURVES = ("equal-frequency", "equal-token")
POINT = re.compile(rf"({'|'.join(CURVES)})-(\d+)\Z")
"""The end of the name of a model with fixed classes: how they are made, and how many."""

Values = dict[str, float]
"""By measure; NaN where it is not defined."""


@dataclass(frozen=True)
class _Model:
    """A row of a file of text-metrics; without `curve` its number of classes is not fixed."""

    path: str
    name: str
    values: Values
    curve: str = ""
    classes: int = 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """None of its own."""


def draw(arguments: argparse.Namespace) -> Figure:
    """A panel for each measure, a curve for each assignment with fixed classes; other models and people as levels."""
    files = [read_measured(path, "text-metrics") for path in arguments.inputs]
    models = [model for measured in files for model in _models(measured)]
    curves, levels, human = _curves(models, arguments.inputs), _levels(models), human_of(files, _values)
    figure, axes = style.new_figure(columns=len(PANELS), width=4.0, height=3.0)
    for axis, (key, (title, factor)) in zip(axes[0], PANELS.items(), strict=True):
        for index, (name, points) in enumerate(curves.items()):
            style.line(axis, index, list(points), [factor * of[key] for of in points.values()], name, marked=True)
        for index, (name, values) in enumerate(levels.items(), 1):  # number 0 looks like the second curve
            style.level(axis, index, factor * values[key], name)
        style.level(axis, None, factor * human[key], HUMAN)
        axis.xaxis.get_major_locator().set_params(integer=True)
        style.finish(axis, title=title, xlabel="classes")
    return style.finish_figure(figure)


def _models(measured: MeasuredFile) -> Iterator[_Model]:
    """The rows of a file."""
    for row in measured.rows("files"):
        found = POINT.search(row["name"])
        curve, classes = found.groups() if found else ("", 0)
        yield _Model(measured.path, row["name"], _values(measured, row), curve, int(classes))


def _values(measured: MeasuredFile, row: dict[str, Any]) -> Values:
    """The measures of a row."""
    return {key: _value(measured, row, key) for key in PANELS}


def _value(measured: MeasuredFile, row: dict[str, Any], key: str) -> float:
    """A measure; of one by order, that of bigrams."""
    if key not in BY_ORDER or row.get(key) is None:
        return measured.number(row, key)
    scores = row[key] if isinstance(row[key], list) else []
    by_order = {str(order): score for order, score in enumerate(scores, 1)}
    return measured.number({**row, key: by_order}, key, str(ORDER))


def _curves(models: Sequence[_Model], paths: list[str]) -> dict[str, dict[int, Values]]:
    """What was measured of the models with fixed classes, by their assignment and number, in its order."""
    curves: dict[str, dict[int, Values]] = {curve: {} for curve in CURVES}
    for model in models:
        if model.curve and curves[model.curve].setdefault(model.classes, model.values) != model.values:
            raise UserError(
                f"{model.path}: found {model.curve} of {model.classes} classes again, as {model.name!r}; expected each "
                "number of classes once; see --name of text-metrics"
            )
    if min(map(len, curves.values())) < 2:
        found = " and ".join(f"{len(points)} models named …{curve}-N" for curve, points in curves.items())
        expected = "expected two or more of each, N their number of classes; see --name of text-metrics"
        raise UserError(f"{', '.join(paths)}: found {found}; {expected}")
    return {curve: dict(sorted(points.items())) for curve, points in curves.items()}


def _levels(models: Sequence[_Model]) -> dict[str, Values]:
    """What was measured of the other models, by name."""
    levels: dict[str, Values] = {}
    for model in models:
        if not model.curve:
            if model.name in (*CURVES, HUMAN) or levels.get(model.name, model.values) != model.values:
                expected = "expected a name for each model; see --name of text-metrics"
                raise UserError(f"{model.path}: found the name {model.name!r} again; {expected}")
            levels[model.name] = model.values
    return levels
