"""Pictures of Results of evaluations: what a hyperparameter does, α or the number of classes, and shares of tokens."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from ..errors import UserError
from ..metrics.groups import MASS_GROUPS
from ..names import HUMAN
from ..result import Result, SeedValues
from . import style

Evaluations = Mapping[str, Result]
"""Results of an evaluation, by the names or paths that errors mention."""
Columns = Sequence[tuple[str, str]]  # measures and their keys
AGG_CURVE = "AGG"
AGG_OPTIONS = {"agg_rare_fraction": "rare fraction", "agg_alpha": "α"}
"""The options that choose the rare group, and how the axis names them."""
CLASS_CURVES = ("equal-frequency", "equal-token")
CLASS_MODEL = re.compile(rf"({'|'.join(CLASS_CURVES)})-(\d+)\Z")
"""The end of the name of a model with fixed classes: how tokens are assigned to them, and their number."""


def alpha_sweep(evaluations: Evaluations) -> style.Figure:
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
    panels = {"perplexity": "perplexity", "unique_predictions": "Uniq", "isotropy": "I(W)"}
    columns = [(measure, group) for group in ("total", "rare") for measure in panels]
    swept: dict[float, list[list[float]]] = {}  # for each value of the option, the values of each model by column
    levels: dict[str, list[float]] = {}
    options = set()
    for name, result in _models(evaluations, columns, "eval-lm"):
        values = _values(evaluations, result, name, columns)
        criterion = result[name].get("criterion")
        if isinstance(criterion, Mapping) and criterion.get("_name") == "agg":
            option = "agg_rare_fraction" if criterion.get("agg_rare_fraction") else "agg_alpha"
            if not isinstance(criterion.get(option), float | int):
                raise UserError(f"{', '.join(evaluations)}: found no {option} of {name!r}; expected a number")
            options.add(option)
            swept.setdefault(criterion[option], []).append(values)
        elif name == AGG_CURVE or name in levels:
            raise _again(evaluations, name, "eval-lm")
        else:
            levels[name] = values
    if len(swept) < 2 or len(options) > 1:
        mixed = ", some with --agg-alpha and some with --agg-rare-fraction" if len(options) > 1 else ""
        raise UserError(
            f"{', '.join(evaluations)}: found {sum(map(len, swept.values()))} models of AGG{mixed}, number of "
            f"different values: {len(swept)}; expected two or more, all of one option"
        )
    figure, axes = style.new_figure(rows=2, columns=len(panels), width=4.0, height=3.0, sharex=True)
    for number, (axis, (measure, group)) in enumerate(zip(axes.flat, columns, strict=True)):
        models = [SeedValues(dict(enumerate(values[number] for values in swept[x]))) for x in sorted(swept)]
        # Where a model has no value, there is a gap.
        means = [seeds.mean if len(seeds.numbers) == len(seeds.of_seed) else math.nan for seeds in models]
        if any(len(seeds.of_seed) > 1 for seeds in models):
            spread = [seeds.deviation or 0.0 for seeds in models]
            low, high = ([mean + sign * sd for mean, sd in zip(means, spread, strict=True)] for sign in (-1, 1))
            axis.fill_between(sorted(swept), low, high, color=style.COLORS[0], alpha=0.2, linewidth=0)
        style.line(axis, 0, sorted(swept), means, AGG_CURVE, marked=True)
        for index, (name, values) in enumerate(levels.items()):
            style.level(axis, index, values[number], name)
        if measure == "unique_predictions":  # a number of tokens
            axis.yaxis.get_major_locator().set_params(integer=True)
        style.finish(axis, title=f"{panels[measure]}, {group}")
    for axis in axes[-1]:
        axis.set_xlabel(AGG_OPTIONS[next(iter(options))])
    return style.finish_figure(figure)


def class_sweep(evaluations: Evaluations) -> style.Figure:
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
    titles = {
        ("ms_jaccard", "2"): "MS-Jaccard-2 × 100",
        ("self_bleu", "2"): "Self-BLEU-2 × 100",
        ("kld", ""): "KLD in nats",
    }
    curves: dict[str, dict[int, list[float]]] = {curve: {} for curve in CLASS_CURVES}
    levels: dict[str, list[float]] = {}
    models, human = _texts(evaluations, list(titles))
    for name, values in models.items():
        match = CLASS_MODEL.search(name)
        points, key = (curves[match[1]], int(match[2])) if match else (levels, name)
        if key in points or key in CLASS_CURVES:
            raise _again(evaluations, name, "text-metrics")
        points[key] = values
    if min(map(len, curves.values())) < 2:
        found = " and ".join(f"{len(points)} models named …{curve}-N" for curve, points in curves.items())
        expected = "expected two or more of each, N their number of classes; see --name of text-metrics"
        raise UserError(f"{', '.join(evaluations)}: found {found}; {expected}")
    figure, axes = style.new_figure(columns=3, width=4.0, height=3.0)
    for panel, (axis, title) in enumerate(zip(axes[0], titles.values(), strict=True)):
        for index, (curve, points) in enumerate(curves.items()):
            scores = [points[classes][panel] for classes in sorted(points)]
            style.line(axis, index, sorted(points), scores, curve, marked=True)
        for index, (name, values) in enumerate(levels.items(), 1):  # level 0 looks like the second curve
            style.level(axis, index, values[panel], name)
        style.level(axis, None, human[panel], HUMAN)
        axis.xaxis.get_major_locator().set_params(integer=True)
        style.finish(axis, title=title, xlabel="classes")
    return style.finish_figure(figure)


def token_shares(evaluations: Evaluations) -> style.Figure:
    """Draws the share of frequent, medium, rare and very rare tokens in generated texts and in the human text.

    A bar for each model and group, and a dark gray one for the human text. The groups are of the tokens that make up
    the top 40%, next 30%, next 20% and last 10% of the training text.

    Args:
        evaluations: of `text_metrics` with `data`, all of the same split.

    Raises:
        UserError: an evaluation has no shares; the name of a model occurs twice; the human texts are not the same.

    Reference: Choi et al. (2020), Fig. 2.
    """
    models, human = _texts(evaluations, [("token_share", group) for group in MASS_GROUPS])
    figure, axes = style.new_figure(width=7.0)
    width = 0.8 / (len(models) + 1)  # 0.2 of the distance between two groups is left free
    for index, (name, percentages) in enumerate([*models.items(), (HUMAN, human)]):
        centers = [group + (index - len(models) / 2) * width for group in range(len(MASS_GROUPS))]
        style.bars(axes[0][0], index if index < len(models) else None, centers, percentages, width, name)
    axes[0][0].set_xticks(range(len(MASS_GROUPS)), MASS_GROUPS)
    style.finish(axes[0][0], ylabel="% of tokens")
    return style.finish_figure(figure)


def _models(evaluations: Evaluations, columns: Columns, command: str) -> list[tuple[str, Result]]:
    """The name and the result of each model; a model that is in several results with the same numbers counts once."""
    models: list[tuple[str, Result]] = []
    for path, result in evaluations.items():
        missing = [measure for measure, key in columns if key not in result.columns.get(measure, ())]
        missing += [f"row {HUMAN!r}"] if HUMAN not in result.rows else []
        if missing:
            option = " with --data" if missing[0] == "token_share" else ""
            raise UserError(f"{path}: found no {missing[0]}; expected what {command} --json writes{option}")
        names = [name for name in result.rows if name != HUMAN]
        models += [(name, result) for name in names if all((name, result[name]) != (n, r[n]) for n, r in models)]
    return models


def _values(evaluations: Evaluations, result: Result, name: str, columns: Columns) -> list[float]:
    """The values of a row as tables show them; NaN for a measure that is not defined."""
    values = [result.shown(name, measure, key) for measure, key in columns]
    if any(isinstance(value, str) for value in values):
        raise UserError(f"{', '.join(evaluations)}: found a text instead of a number in the row {name!r}")
    return [math.nan if value is None else value for value in values]


def _texts(evaluations: Evaluations, columns: Columns) -> tuple[dict[str, list[float]], list[float]]:
    """The values of each model by its name, and those of the human texts, in evaluations of `text_metrics`."""
    models: dict[str, list[float]] = {}
    for name, result in _models(evaluations, columns, "text-metrics"):
        if name in models:
            raise _again(evaluations, name, "text-metrics")
        models[name] = _values(evaluations, result, name, columns)
    human = [_values(evaluations, result, HUMAN, columns) for result in evaluations.values()]
    if len({repr(values) for values in human}) > 1:  # NaN is NaN
        raise UserError(f"{', '.join(evaluations)}: found different human texts; expected texts of the same split")
    return models, human[0]


def _again(evaluations: Evaluations, name: str, command: str) -> UserError:
    return UserError(
        f"{', '.join(evaluations)}: found the name {name!r} again; expected a name for each model; see --name of "
        f"{command}"
    )
