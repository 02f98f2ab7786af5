"""The common look of the pictures, which can be read in gray. Figures are made without `pyplot`:
they need no screen, and need not be closed."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHADES = ("#2c1160", "#a52c60", "#f57d15", "#fbbf45")
MARKERS = ("o", "^", "x", "s", "D")
DASHES = ("-", "--", ":")
"""Shades are from dark to light. The three lengths have no common divisor, so that 60 curves look
different."""
MARKS_PER_CURVE = 20  # at most
NAME_LENGTH = 28  # characters of a name per line
MAX_POINTS = 2000  # of a group in a scatter plot, and of a curve


def new_panels(
    count: int = 1, columns: int = 3, *, width: float = 5.0, height: float = 3.6, **options: Any
) -> tuple[Figure, list[Axes]]:
    """An empty figure and its panels, each of this width and height in inches."""
    from matplotlib import figure as figures

    columns = min(count, columns)
    rows = -(-count // columns)
    figure = figures.Figure(figsize=(width * columns, height * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, **options).flat
    for unused in grid[count:]:
        unused.remove()
    return figure, list(grid[:count])


def line(axis: Axes, index: int, x: Sequence[float], y: Sequence[float], label: str) -> None:
    """Draws curve number `index`. NaN is a gap, and a curve of nothing but NaN is left out."""
    if not all(map(math.isnan, y)):
        axis.plot(
            x, y, label=legend_label(label), color=SHADES[index % len(SHADES)], linestyle=DASHES[index % len(DASHES)],
            marker=MARKERS[index % len(MARKERS)], markersize=4, markevery=-(-len(x) // MARKS_PER_CURVE),
        )  # fmt: skip


def scatter(axis: Axes, groups: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> None:
    """Draws at most 2,000 points of each frequency group, evenly chosen; a tenth of each in turn,
    so that no group covers the others."""
    for part in range(10):
        for index, (label, (x, y)) in enumerate(groups.items()):
            step = max(1, -(-len(x) // MAX_POINTS))
            x_of_part, y_of_part = x[::step][part::10], y[::step][part::10]
            if x_of_part:
                axis.scatter(
                    x_of_part, y_of_part, s=7, linewidths=0.6, alpha=0.6, rasterized=True, color=SHADES[index],
                    marker=MARKERS[index], label=None if part else legend_label(label),
                )  # fmt: skip


def legend_label(label: str) -> str:
    """The label after a space: matplotlib leaves out labels that begin with an underscore."""
    return f" {label}"


def finish(axis: Axes, *, title: str = "", **properties: Any) -> None:
    """Completes a panel with properties such as `yscale`; an empty one says "not defined"."""
    from matplotlib import ticker

    axis.set(**properties)
    axis.set_title(textwrap.fill(title, NAME_LENGTH), parse_math=False)
    for direction in (axis.xaxis, axis.yaxis):
        if direction.get_scale() == "log":
            low, high = direction.get_view_interval()
            powers = ticker.LogLocator(subs=(1, 2, 5) if high < 1000 * low else (1,))
            direction.set_major_locator(powers if high > 10 * low else ticker.MaxNLocator(6))
            direction.set_major_formatter("{x:,.12g}")
            direction.set_minor_formatter(ticker.NullFormatter())
    axis.grid(color="0.9")
    axis.set_axisbelow(True)
    if not axis.has_data():
        axis.text(
            0.5, 0.5, "not defined", transform=axis.transAxes, ha="center", va="center", color="0.4"
        )


def finish_figure(figure: Figure) -> Figure:
    """Adds one legend below all panels, with each label once, and returns the figure."""
    handles = {}
    for axis in figure.axes:
        handles |= {handle.get_label(): handle for handle in axis.get_legend_handles_labels()[0]}
    if handles:
        width = 0.6 + 0.09 * min(max(map(len, handles)), NAME_LENGTH)  # inches of an entry
        columns = max(1, int(figure.get_figwidth() / width))
        figure.set_figheight(figure.get_figheight() + 0.25 * -(-len(handles) // columns))
        legend = figure.legend(
            handles=list(handles.values()), loc="outside lower center", ncols=columns, markerscale=2
        )
        for text in legend.get_texts():
            text.set(text=textwrap.fill(text.get_text().strip(), NAME_LENGTH), parse_math=False)
    return figure


def save(figure: Figure, file: str | Path | IO[bytes], kind: str) -> None:
    """Writes a picture as "png" (150 dots per inch), "svg" or "pdf", always with the same bytes."""
    from matplotlib import rc_context

    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    with rc_context({"svg.hashsalt": "agg-fairseq"}):
        figure.savefig(file, format=kind, dpi=150, metadata=undated.get(kind))
