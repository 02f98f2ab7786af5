"""Pictures of Results, and of the frequencies of tokens."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from ..columns import METRICS, column_titles
from ..data.binarized import folders, training_pair
from ..data.vocabulary import BinarizedVocabulary
from ..errors import UserError
from ..names import HUMAN, MASS_GROUPS, UNIGRAM, UNSEEN
from ..result import Result
from . import style

Evaluations = Mapping[str, Result]  # by path; a row may be in several, with the same numbers
Points = dict[float, list[list[float]]]  # by x, for each model its value in each panel
AGG_OPTIONS = {"agg_rare_fraction": "rare fraction", "agg_alpha": "α"}
"""The options that choose the rare group, and their names on the axis."""
CLASS_CURVES = ("equal-frequency", "equal-token")
CLASS_MODEL = re.compile(rf"({'|'.join(CLASS_CURVES)})-(\d+)\Z")
"""The end of the name of a model with fixed classes: their kind and number."""


def alpha_sweep(evaluations: Evaluations) -> style.Figure:
    """Draws perplexity, Uniq and isotropy against α, or the rare fraction, of adaptive gradient
    gating.

    A panel for each measure over all tokens and over the rare ones, with a curve of the models of
    `--criterion agg`, their mean where several have the same value. Other models are horizontal
    lines.

    Args:
        evaluations: of `perplexity`.

    Reference: Yu et al. (2022), Fig. 5.
    """
    titles = {}
    measures = {"perplexity": "perplexity", "unique_predictions": "Uniq", "isotropy": "I(W)"}
    for group in ("total", "rare"):
        for measure, title in measures.items():
            titles[measure, group] = f"{title}, {group}"
    points: Points = {}
    levels: dict[str, list[float]] = {}
    options = set()
    for name, (row, values) in _rows(evaluations, titles, "eval-lm").items():
        criterion = row.get("criterion", {})  # the human texts have none
        chosen = [option for option in AGG_OPTIONS if criterion.get(option) is not None]
        if chosen and criterion.get("_name", "agg") == "agg":  # other rules have these options too
            options.add(chosen[0])
            points.setdefault(criterion[chosen[0]], []).append(values)
        elif name not in (HUMAN, UNIGRAM):
            levels[name] = values
    if len(options) != 1:
        found = " and ".join(sorted(options)) or "no model of --criterion agg"
        raise UserError(
            f"{', '.join(evaluations)}: found {found}; expected models with one option of AGG"
        )
    return _sweep(list(titles.values()), {"AGG": points}, levels, AGG_OPTIONS[options.pop()], {})


def class_sweep(evaluations: Evaluations) -> style.Figure:
    """Draws how similar generated texts are to human texts and to each other, and the perplexity of
    the models, by the number of frequency classes.

    Models named …equal-frequency-N or …equal-token-N (see --name of text-metrics), where N is the
    number of classes, are the points of two curves; all others are horizontal lines, or a star
    where eval-lm found classes.

    Args:
        evaluations: of `text_metrics`, all of the same split; and of `perplexity`, with the same
            names of rows, which takes the place of the KLD.

    Reference: Choi et al. (2020), Fig. 3.
    """
    titles = {("ms_jaccard", "2"): "MS-Jaccard-2 × 100", ("self_bleu", "2"): "Self-BLEU-2 × 100"}
    model_results, text_results = {}, {}
    for path, found in evaluations.items():
        if "perplexity" in found.columns:
            model_results[path] = found
        else:
            text_results[path] = found
    if not model_results:
        titles["kld", ""] = "KLD in nats"
    perplexities = _rows(model_results, [("perplexity", "total")], "eval-lm")
    points: dict[str, Points] = {curve: {} for curve in CLASS_CURVES}
    levels: dict[str, list[float]] = {}
    stars: dict[str, tuple[float, list[float]]] = {}
    for name, (_, values) in _rows(text_results, titles, "text-metrics").items():
        row, perplexity = perplexities.get(name, ({}, [math.nan]))
        if model_results:
            values += perplexity
        if match := CLASS_MODEL.search(str(name)):
            points[match[1]].setdefault(int(match[2]), []).append(values)
        elif row.get("classes"):
            stars[name] = row["classes"], values
        else:
            levels[name] = values
    if not any(points.values()):
        raise UserError(
            f"{', '.join(evaluations)}: found no row named …equal-frequency-N or …equal-token-N; "
            "expected some, by text-metrics --name"
        )
    panels = [*titles.values(), *["perplexity"] * bool(model_results)]
    return _sweep(panels, points, levels, "classes", stars)


def _sweep(
    titles: Sequence[str],
    curves: Mapping[str, Points],
    levels: Mapping[str, list[float]],
    xlabel: str,
    stars: Mapping[str, tuple[float, list[float]]],
) -> style.Figure:
    """A panel for each title, with the mean at each point of the curves, horizontal lines, and
    stars at an x."""
    figure, panels = style.new_panels(len(titles), width=4.0, height=3.0)
    every_x = set().union(*curves.values(), (x for x, _ in stars.values()))
    ends = [min(every_x), max(every_x)]
    for panel, (axis, title) in enumerate(zip(panels, titles, strict=True)):
        for index, (name, points) in enumerate(curves.items()):
            x, means = sorted(points), []
            for at in x:
                means.append(fmean(values[panel] for values in points[at]))
            style.line(axis, index, x, means, name)
        for index, (name, values) in enumerate(levels.items(), len(curves)):
            style.line(axis, index, ends, [values[panel]] * 2, name)
        for name, (at, values) in stars.items():
            label = style.legend_label(name)
            axis.plot([at], [values[panel]], "*", color="black", markersize=10, label=label)
        style.finish(axis, title=title, xlabel=xlabel)
    return style.finish_figure(figure)


def token_shares(evaluations: Evaluations) -> style.Figure:
    """Draws the share of frequent, medium, rare and very rare tokens in generated texts and in the
    human text.

    The groups are the tokens that make up the top 40%, next 30%, next 20% and last 10% of the
    training text, and those that it never has (unseen).

    Args:
        evaluations: of `text_metrics` with `data`, all of the same split.

    Reference: Choi et al. (2020), Fig. 2.
    """
    groups = [*MASS_GROUPS]
    if any(UNSEEN in result.columns.get("token_share", ()) for result in evaluations.values()):
        groups.append(UNSEEN)
    columns = [("token_share", group) for group in groups]
    rows = _rows(evaluations, columns, "text-metrics --data DATA")
    if HUMAN in rows:
        rows[HUMAN] = rows.pop(HUMAN)  # the last
    figure, (axis,) = style.new_panels(width=7.0)
    width = 0.8 / len(rows)  # 0.2 of the distance between two groups is left free
    for index, (name, (_, percentages)) in enumerate(rows.items()):
        left = (index - (len(rows) - 1) / 2) * width
        centers = [group + left for group in range(len(groups))]
        axis.bar(
            centers, percentages, width, label=style.legend_label(name), color=style.SHADES[index % 4],
            hatch="/" * (index // 4), edgecolor="white",
        )  # fmt: skip
    axis.set_xticks(range(len(groups)), groups)
    style.finish(axis, ylabel="% of tokens")
    return style.finish_figure(figure)


def _rows(
    evaluations: Evaluations, columns: Collection[tuple[str, str]], command: str
) -> dict[str, tuple[Mapping[str, Any], list[float]]]:
    """Each row and its values as tables show them, NaN for what is not defined; UserError without
    these columns, which the `command` writes."""
    rows = {}
    for path, result in evaluations.items():
        titles = column_titles(result.columns)
        for metric, key in columns:
            if (metric, key) not in titles or not result.rows:
                raise UserError(
                    f"{path}: found no {METRICS[metric].title.format(key).strip()}; expected what "
                    f"agg-fairseq {command} wrote to --json"
                )
        for name in result.rows:
            values = []
            for column in columns:
                shown = result.shown(name, *column)
                values.append(shown if isinstance(shown, float | int) else math.nan)
            if repr(rows.setdefault(name, (result[name], values))[1]) != repr(values):  # NaN is NaN
                found = f"found other numbers in the row {name!r} than in another file"
                raise UserError(
                    f"{path}: {found}; expected results of one split, and a --name for each model"
                )
    return rows


def frequencies(data: Mapping[str, str | Path]) -> style.Figure:
    """Draws the number of occurrences of each token in the training split, on a logarithmic scale,
    by its rank.

    A curve for each folder, or for each language of a parallel corpus.

    Args:
        data: folders written by `fairseq-preprocess`, by the names of the curves.

    Reference: Gao et al. (2019), Fig. 3.
    """
    counts = {}
    for name, path in data.items():
        if (folders(path)[0] / "dict.txt").is_file():
            counts[name] = BinarizedVocabulary.load(path).counts
            continue
        source, target = training_pair(path)
        for pair in ((target, source), (source, target)):
            counts[f"{name} {pair[1]}"] = BinarizedVocabulary.load(path, pair).counts
    figure, (axis,) = style.new_panels()
    for index, (name, token_counts) in enumerate(counts.items()):
        seen = token_counts[token_counts > 0].sort(descending=True).values.tolist()
        style.line(axis, index, range(1, len(seen) + 1), seen, name)
    style.finish(axis, xlabel="rank", ylabel="occurrences", yscale="log")
    return style.finish_figure(figure)
