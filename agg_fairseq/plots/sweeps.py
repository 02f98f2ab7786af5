"""Pictures of what a hyperparameter does: α, or the number of classes."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from ..errors import UserError
from ..names import HUMAN
from ..result import SeedValues
from . import style
from .measurements import Evaluations, Row, again, number, reading, rows_of, texts_of

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
    swept: dict[float, list[Row]] = {}  # by the value of the option
    options, levels = set(), {}
    with reading(evaluations, "eval-lm"):
        for row in rows_of(evaluations, "checkpoints"):
            if row["criterion"].get("_name") == "agg":
                option = "agg_rare_fraction" if row["criterion"].get("agg_rare_fraction") else "agg_alpha"
                options.add(option)
                swept.setdefault(number(row["criterion"][option]), []).append(row)
            elif row["name"] == AGG_CURVE or row["name"] in levels:
                raise again(evaluations, row["name"], "eval-lm")
            else:
                levels[row["name"]] = row
    if len(swept) < 2 or len(options) > 1:
        mixed = ", some with --agg-alpha and some with --agg-rare-fraction" if len(options) > 1 else ""
        raise UserError(
            f"{', '.join(evaluations)}: found {sum(map(len, swept.values()))} models of AGG{mixed}, number of "
            f"different values: {len(swept)}; expected two or more, all of one option"
        )
    panels, lines = {"perplexity": "perplexity", "uniq": "Uniq", "isotropy": "I(W)"}, ("total", "rare")
    figure, axes = style.new_figure(rows=len(lines), columns=len(panels), width=4.0, height=3.0, sharex=True)
    places = [(key, title, line) for line in lines for key, title in panels.items()]
    for axis, (key, title, line) in zip(axes.flat, places, strict=True):
        with reading(evaluations, "eval-lm"):
            models = [SeedValues(dict(enumerate(number(row[key][line]) for row in swept[x]))) for x in sorted(swept)]
            heights = {name: number(row[key][line]) for name, row in levels.items()}
        # Where a model has no value, there is a gap.
        means = [one.mean if len(one.numbers) == len(one.of_seed) else math.nan for one in models]
        if any(len(one.of_seed) > 1 for one in models):
            spread = [one.deviation or 0.0 for one in models]
            low, high = ([mean + sign * sd for mean, sd in zip(means, spread, strict=True)] for sign in (-1, 1))
            axis.fill_between(sorted(swept), low, high, color=style.COLORS[0], alpha=0.2, linewidth=0)
        style.line(axis, 0, sorted(swept), means, AGG_CURVE, marked=True)
        for index, (name, height) in enumerate(heights.items()):
            style.level(axis, index, height, name)
        if key == "uniq":  # a number of tokens
            axis.yaxis.get_major_locator().set_params(integer=True)
        style.finish(axis, title=f"{title}, {line}")
    for axis in axes[-1]:
        axis.set_xlabel(AGG_OPTIONS[next(iter(options))])
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

    def measures(row: Row) -> list[float]:
        """Those of bigrams, the second of the orders from 1 on; in the order of the panels."""
        bigrams = [row["ms_jaccard"] and row["ms_jaccard"][1], row["self_bleu"] and row["self_bleu"][1]]
        return [*(100 * number(one) for one in bigrams), number(row["kld"])]

    curves: dict[str, dict[int, list[float]]] = {curve: {} for curve in CLASS_CURVES}
    levels: dict[str, list[float]] = {}
    models, human = texts_of(evaluations, measures)
    for name, found in models.items():
        match = CLASS_MODEL.search(name)
        points, key = (curves[match[1]], int(match[2])) if match else (levels, name)
        if key in points or key in (*CLASS_CURVES, HUMAN):
            raise again(evaluations, name, "text-metrics")
        points[key] = found
    if min(map(len, curves.values())) < 2:
        found = " and ".join(f"{len(points)} models named …{curve}-N" for curve, points in curves.items())
        expected = "expected two or more of each, N their number of classes; see --name of text-metrics"
        raise UserError(f"{', '.join(evaluations)}: found {found}; {expected}")
    figure, axes = style.new_figure(columns=3, width=4.0, height=3.0)
    titles = ("MS-Jaccard-2 × 100", "Self-BLEU-2 × 100", "KLD in nats")
    for panel, (axis, title) in enumerate(zip(axes[0], titles, strict=True)):
        for index, (curve, points) in enumerate(curves.items()):
            scores = [points[classes][panel] for classes in sorted(points)]
            style.line(axis, index, sorted(points), scores, curve, marked=True)
        for index, (name, values) in enumerate(levels.items(), 1):  # level 0 looks like the second curve
            style.level(axis, index, values[panel], name)
        style.level(axis, None, human[panel], HUMAN)
        axis.xaxis.get_major_locator().set_params(integer=True)
        style.finish(axis, title=title, xlabel="classes")
    return style.finish_figure(figure)
