"""Pictures of what a hyperparameter does: α of adaptive gradient gating, and the number of frequency classes."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from ..names import HUMAN
from . import style
from .measurements import Evaluations, Measurements, human_measurements, measurements_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AGG_CURVE = "AGG"
AGG_OPTIONS = {"agg_rare_fraction": "rare fraction", "agg_alpha": "α"}
"""The options that choose the rare group, and how the axis names them."""
CLASS_CURVES = ("equal-frequency", "equal-token")
CLASS_MODEL = re.compile(rf"({'|'.join(CLASS_CURVES)})-(\d+)\Z")
"""The end of the name of a model with fixed classes: how tokens are assigned to them, and their number."""


def alpha_sweep(evaluations: Evaluations) -> Figure:
    """Draws perplexity, Uniq and isotropy against α, or the rare fraction, of adaptive gradient gating.

    A panel for each measure over all tokens and over the rare ones, with a curve of the models that were trained with
    `--criterion agg`. All other models are horizontal lines. If several models of AGG have the same value, such as
    those of several seeds, the curve is their mean, and a band around it their standard deviation.

    Args:
        evaluations: of `perplexity`, of two or more models of AGG with different α and of any others. A model may be in
            several evaluations with the same numbers.

    Raises:
        UserError: there are fewer than two values of AGG's option; some have α and some the rare fraction; two
            different models have the same name; or a number is missing.

    Reference: Yu et al. (2022), Fig. 5.
    """
    panels = {"perplexity": "perplexity", "uniq": "Uniq", "isotropy": "I(W)"}
    lines = ("total", "rare")
    swept: list[tuple[str, str, float, dict[tuple[str, str], float]]] = []  # name, option, its value, the measures
    levels: dict[str, dict[tuple[str, str], float]] = {}
    for evaluation in measurements_of(evaluations, "eval-lm"):
        for row in evaluation.rows("checkpoints"):
            name = row["name"]
            values = {(key, line): evaluation.number(row, key, line) for key in panels for line in lines}
            criterion = row.get("criterion") or {}
            if not isinstance(criterion, Mapping):
                raise evaluation.error(f"found a {type(criterion).__name__} as criterion of {name!r}")
            if criterion.get("_name") == "agg":
                option = "agg_rare_fraction" if criterion.get("agg_rare_fraction") else "agg_alpha"
                x = evaluation.number(row, "criterion", option)
                if math.isnan(x):
                    raise UserError(f"{evaluation.source}: found no {option} of {name!r}; expected a number")
                if (name, option, x, values) not in swept:
                    swept.append((name, option, x, values))
            elif name == AGG_CURVE or levels.setdefault(name, values) != values:
                expected = "expected a name for each model without AGG; see --name of eval-lm"
                raise UserError(f"{evaluation.source}: found the name {name!r} again; {expected}")
    options = {option for _, option, _, _ in swept}
    by_value: dict[float, list[dict[tuple[str, str], float]]] = {}
    for _, _, x, values in sorted(swept, key=lambda model: model[2]):
        by_value.setdefault(x, []).append(values)
    if len(by_value) < 2 or len(options) > 1:
        mixed = ", some with --agg-alpha and some with --agg-rare-fraction" if len(options) > 1 else ""
        raise UserError(
            f"{', '.join(evaluations)}: found {len(swept)} models of AGG{mixed}, number of different values: "
            f"{len(by_value)}; expected two or more, all of one option"
        )
    figure, axes = style.new_figure(rows=len(lines), columns=len(panels), width=4.0, height=3.0, sharex=True)
    for line, axes_of_line in zip(lines, axes, strict=True):
        for axis, (key, title) in zip(axes_of_line, panels.items(), strict=True):
            models = [[values[key, line] for values in of_value] for of_value in by_value.values()]
            means = [statistics.fmean(values) for values in models]
            if len(swept) > len(by_value):
                # one model has no deviation; where a value is not defined, the mean is NaN, a gap
                measured = [len(values) > 1 and all(map(math.isfinite, values)) for values in models]
                spread = [statistics.stdev(v) if several else 0.0 for v, several in zip(models, measured, strict=True)]
                low, high = ([mean + sign * sd for mean, sd in zip(means, spread, strict=True)] for sign in (-1, 1))
                style.band(axis, 0, list(by_value), low, high)
            style.line(axis, 0, list(by_value), means, AGG_CURVE, marked=True)
            for index, (name, values) in enumerate(levels.items()):
                style.level(axis, index, values[key, line], name)
            if key == "uniq":  # a number of tokens
                axis.yaxis.get_major_locator().set_params(integer=True)
            style.finish(axis, title=f"{title}, {line}")
    for axis in axes[-1]:
        axis.set_xlabel(AGG_OPTIONS[swept[0][1]])
    return style.finish_figure(figure)


def class_sweep(evaluations: Evaluations) -> Figure:
    """Draws how similar generated texts are to human texts and to each other, by the number of frequency classes.

    Models whose names end in equal-frequency-N or equal-token-N, where N is the number of classes, are the points of
    two curves; all other models, and the human text, are horizontal lines. See --name of text-metrics.

    Args:
        evaluations: of `text_metrics`, all of the same split. A model may be in several evaluations with the same
            numbers.

    Raises:
        UserError: a curve has fewer than two points; two different models have the same name, or the same number of
            classes on one curve; the human texts are not the same; or a number is missing.

    Reference: Choi et al. (2020), Fig. 3.
    """
    panels = {  # by measure the title of its panel, and what it is multiplied by
        "ms_jaccard": ("MS-Jaccard-2 × 100", 100),
        "self_bleu": ("Self-BLEU-2 × 100", 100),
        "kld": ("KLD in nats", 1),
    }

    def measures(evaluation: Measurements, row: Mapping[str, Any]) -> dict[str, float]:
        found = {}
        for key in panels:
            scores = row.get(key)
            if key == "kld" or scores is None:
                found[key] = evaluation.number(row, key)
            else:  # a list by order, from 1 on, of which that of bigrams is shown
                by_order = {str(n): score for n, score in enumerate(scores, 1)} if isinstance(scores, list) else {}
                found[key] = evaluation.number({**row, key: by_order}, key, "2")
        return found

    read = measurements_of(evaluations, "text-metrics")
    curves: dict[str, dict[int, dict[str, float]]] = {curve: {} for curve in CLASS_CURVES}
    levels: dict[str, dict[str, float]] = {}
    for evaluation in read:
        for row in evaluation.rows("files"):
            name, values = row["name"], measures(evaluation, row)
            if match := CLASS_MODEL.search(name):
                curve, classes = match[1], int(match[2])
                if curves[curve].setdefault(classes, values) != values:
                    raise UserError(
                        f"{evaluation.source}: found {curve} of {classes} classes again, as {name!r}; expected each "
                        "number of classes once; see --name of text-metrics"
                    )
            elif name in (*CLASS_CURVES, HUMAN) or levels.setdefault(name, values) != values:
                expected = "expected a name for each model; see --name of text-metrics"
                raise UserError(f"{evaluation.source}: found the name {name!r} again; {expected}")
    if min(map(len, curves.values())) < 2:
        found = " and ".join(f"{len(points)} models named …{curve}-N" for curve, points in curves.items())
        expected = "expected two or more of each, N their number of classes; see --name of text-metrics"
        raise UserError(f"{', '.join(evaluations)}: found {found}; {expected}")
    human = human_measurements(read, measures)
    figure, axes = style.new_figure(columns=len(panels), width=4.0, height=3.0)
    for axis, (key, (title, factor)) in zip(axes[0], panels.items(), strict=True):
        for index, (curve, points) in enumerate(curves.items()):
            classes = sorted(points)
            scores = [factor * points[number][key] for number in classes]
            style.line(axis, index, classes, scores, curve, marked=True)
        for index, (name, values) in enumerate(levels.items(), 1):  # level 0 looks like the second curve
            style.level(axis, index, factor * values[key], name)
        style.level(axis, None, factor * human[key], HUMAN)
        axis.xaxis.get_major_locator().set_params(integer=True)
        style.finish(axis, title=title, xlabel="classes")
    return style.finish_figure(figure)
