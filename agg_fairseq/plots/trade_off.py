"""A picture of what methods gain in one measure, and pay in another."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from . import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def trade_off(points: Mapping[str, Sequence[Sequence[float]]], labels: Sequence[str]) -> Figure:
    """Draws measures of several methods against one of them, a point per method.

    A point is the mean over seeds, its bars one standard deviation; a single seed has no bars.

    Args:
        points: by method, the measures of each seed, in the order of `labels`.
        labels: that of the horizontal axis, then those of the vertical axes, a panel for each. Axes of perplexities are
            logarithmic where the largest is more than twice the smallest.
    """
    figure, axes = style.new_figure(columns=len(labels) - 1, width=6.0, height=4.6)
    means = {name: [statistics.fmean(values) for values in zip(*seeds, strict=True)] for name, seeds in points.items()}
    for panel, (axis, label) in enumerate(zip(axes[0], labels[1:], strict=True), 1):
        for index, (name, seeds) in enumerate(points.items()):
            x, y = means[name][0], means[name][panel]
            bars = [
                statistics.stdev(seed[column] for seed in seeds) if len(seeds) > 1 else None for column in (0, panel)
            ]
            style.point(axis, index, x, y, bars, name)
        axis.margins(x=0.1)  # room for the names beside the points
        heights = [mean[panel] for mean in means.values()]
        scale = "log" if min(heights) > 0 and max(heights) > 2 * min(heights) and "PPL" in label else "linear"
        style.finish(axis, xlabel=labels[0], ylabel=label, yscale=scale)
    return style.finish_figure(figure)
