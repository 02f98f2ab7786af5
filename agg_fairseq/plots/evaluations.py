"""Pictures of Results of evaluations: what a hyperparameter does, α or the number of classes, and shares of tokens.

They are drawn from a `Result`, or from what a command wrote by --json.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from ..errors import UserError
from ..metrics.groups import MASS_GROUPS
from ..names import HUMAN
from ..result import Result, SeedValues
from . import style

T = TypeVar("T")
Row = Mapping[str, Any]  # what was measured of one model, with its `name`
Evaluations = Mapping[str, Result | Mapping[str, Any]]
"""Results of an evaluation, or the contents of its JSON files, by the names or paths that errors mention."""
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
    swept: dict[float, list[Row]] = {}  # by the value of the option
    options, levels = set(), {}
    with _reading(evaluations, "eval-lm"):
        for row in _rows_of(evaluations, "checkpoints"):
            if row["criterion"].get("_name") == "agg":
                option = "agg_rare_fraction" if row["criterion"].get("agg_rare_fraction") else "agg_alpha"
                options.add(option)
                swept.setdefault(_number(row["criterion"][option]), []).append(row)
            elif row["name"] == AGG_CURVE or row["name"] in levels:
                raise _again(evaluations, row["name"], "eval-lm")
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
        with _reading(evaluations, "eval-lm"):
            models = [SeedValues(dict(enumerate(_number(row[key][line]) for row in swept[x]))) for x in sorted(swept)]
            heights = {name: _number(row[key][line]) for name, row in levels.items()}
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

    def measures(row: Row) -> list[float]:
        """Those of bigrams, the second of the orders from 1 on; in the order of the panels."""
        bigrams = [row["ms_jaccard"] and row["ms_jaccard"][1], row["self_bleu"] and row["self_bleu"][1]]
        return [*(100 * _number(one) for one in bigrams), _number(row["kld"])]

    curves: dict[str, dict[int, list[float]]] = {curve: {} for curve in CLASS_CURVES}
    levels: dict[str, list[float]] = {}
    models, human = _texts_of(evaluations, measures)
    for name, found in models.items():
        match = CLASS_MODEL.search(name)
        points, key = (curves[match[1]], int(match[2])) if match else (levels, name)
        if key in points or key in (*CLASS_CURVES, HUMAN):
            raise _again(evaluations, name, "text-metrics")
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

    def shares(row: Row) -> list[float]:
        if not row.get("shares"):
            raise UserError(f"{', '.join(evaluations)}: found no shares; run text-metrics with --data")
        return [_number(row["shares"][group]) for group in MASS_GROUPS]

    models, human = _texts_of(evaluations, shares)
    figure, axes = style.new_figure(width=7.0)
    width = 0.8 / (len(models) + 1)  # 0.2 of the distance between two groups is left free
    for index, (name, of_groups) in enumerate([*models.items(), (HUMAN, human)]):
        places = [group + (index - len(models) / 2) * width for group in range(len(MASS_GROUPS))]
        percentages = [100 * share for share in of_groups]
        style.bars(axes[0][0], index if index < len(models) else None, places, percentages, width, name)
    axes[0][0].set_xticks(range(len(MASS_GROUPS)), MASS_GROUPS)
    style.finish(axes[0][0], ylabel="% of tokens")
    return style.finish_figure(figure)


def _number(value: float | None) -> float:
    """A number; NaN for a measure that is not defined."""
    if not isinstance(value, float | int | None):
        raise TypeError(f"a {type(value).__name__} instead of a number")
    return math.nan if value is None else value


@contextlib.contextmanager
def _reading(evaluations: Evaluations, command: str) -> Iterator[None]:
    """Raises a UserError where the evaluations are not what a command writes."""
    try:
        yield
    except (LookupError, TypeError, AttributeError) as error:
        found = str(error) if isinstance(error, TypeError) else f"no {error}"
        raise UserError(f"{', '.join(evaluations)}: found {found}; expected what {command} --json writes") from error


def _rows_of(evaluations: Evaluations, key: str) -> list[Row]:
    """The models of all evaluations, those in the list `key` of the details, each once."""
    found: list[Row] = []
    for details in _details(evaluations):
        found += [row for row in details[key] if row not in found]
    return found


def _texts_of(evaluations: Evaluations, read: Callable[[Row], T]) -> tuple[dict[str, T], T]:
    """What `read` reads in evaluations of `text_metrics`: of each model, by its name, and of the human texts."""
    models: dict[str, T] = {}
    with _reading(evaluations, "text-metrics"):
        for row in _rows_of(evaluations, "files"):
            if row["name"] in models:
                raise _again(evaluations, row["name"], "text-metrics")
            models[row["name"]] = read(row)
        human = [read(details[HUMAN]) for details in _details(evaluations)]
    if len({repr(one) for one in human}) > 1:  # NaN is NaN
        raise UserError(f"{', '.join(evaluations)}: found different human texts; expected texts of the same split")
    return models, human[0]


def _again(evaluations: Evaluations, name: str, command: str) -> UserError:
    return UserError(
        f"{', '.join(evaluations)}: found the name {name!r} again; expected a name for each model; see --name of "
        f"{command}"
    )


def _details(evaluations: Evaluations) -> list[Mapping[str, Any]]:
    return [one.details if isinstance(one, Result) else one for one in evaluations.values()]
