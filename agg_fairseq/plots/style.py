"""The common look of the pictures.

Runs differ both in color and in marker, dash or hatch, and groups are on a ramp from dark to light, so that every
picture can be read in gray. Names are never taken for mathematical markup. Figures are made without `pyplot`: they need
no screen, do not change the backend of a notebook, and need not be closed.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

COLORS = ("#0072B2", "#E69F00", "#D55E00", "#009E73", "#CC79A7", "#56B4E9")
"""Of runs: the palette of Okabe and Ito, which color-blind people can tell apart."""
RAMP = ("#2c1160", "#a52c60", "#f57d15", "#fbbf45")  # of frequency groups, from the most frequent to the rarest
MARKERS = ("o", "^", "x", "s", "D", "v", "P")
DASHES = ("-", "--", ":", "-.", (0, (5, 1, 1, 1, 1, 1)))
HATCHES = ("///", "...", "xxx", "\\\\\\", "+++", "ooo", "---")
"""The numbers of markers, dashes and hatches have no divisor in common with the number of colors, so that 30 curves are
drawn before two look alike."""
MARKS_PER_CURVE = 8  # about as many markers are on a curve of many points
REFERENCE = "0.25"  # dark gray, for what the runs are compared with
PANELS_PER_ROW = 3
NAME_LENGTH = 28  # characters of a name per line; longer names are broken into several lines
MAX_POINTS = 2000  # number of points of a group that are drawn at most


def new_figure(
    rows: int = 1, columns: int = 1, *, width: float = 5.0, height: float = 3.6, **options: Any
) -> tuple[Figure, np.ndarray]:
    """An empty figure and its axes (rows, columns), each of this width and height in inches."""
    from matplotlib import figure as figures

    figure = figures.Figure(figsize=(width * columns, height * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def new_panels(count: int, *, xlabel: str, ylabel: str, **options: Any) -> tuple[Figure, list[Axes]]:
    """As `new_figure`, of so many panels, at most three per row, each with its label of x."""
    columns = min(count, PANELS_PER_ROW)
    figure, grid = new_figure(-(-count // columns), columns, **options)
    for unused in grid.flat[count:]:
        unused.remove()
    for axis in grid.flat[:count]:
        axis.set_xlabel(xlabel)
        axis.tick_params(labelbottom=True)  # also above an empty cell of the grid
    figure.supylabel(ylabel, fontsize="medium")
    return figure, list(grid.flat[:count])


def line(
    axis: Axes,
    index: int,
    x: Sequence[float],
    y: Sequence[float],
    label: str,
    *,
    marked: bool = False,
    colors: Sequence[str] = COLORS,
) -> None:
    """Draws the curve of run or group `index`, with a marker on each point if it is `marked`, otherwise on some.

    NaN is a gap, and a curve of nothing but NaN is left out.
    """
    if all(map(math.isnan, y)):
        return
    axis.plot(
        x, y, label=_legend_label(label), color=colors[index % len(colors)], linestyle=DASHES[index % len(DASHES)],
        marker=MARKERS[index % len(MARKERS)], markersize=4, markevery=1 if marked else -(-len(x) // MARKS_PER_CURVE),
    )  # fmt: skip


def level(axis: Axes, index: int | None, y: float, label: str) -> None:
    """Draws a horizontal line, unless `y` is NaN: number `index` beside curve 0, or the reference where it is None."""
    if not math.isnan(y):
        style = {"color": REFERENCE}
        if index is not None:
            colors, dashes = COLORS[1:], DASHES[1:]  # without those of curve 0
            style = {"color": colors[index % len(colors)], "linestyle": dashes[index % len(dashes)]}
        axis.axhline(y, label=_legend_label(label), **style)
        axis.autoscale_view()  # axhline does not, and a line just beyond the curves would lie on the frame


def scatter(axis: Axes, groups: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> None:
    """Draws the points of frequency groups, evenly thinned out to at most 2,000 of each.

    A tenth of each group is drawn in turn, so that no group covers the others. One without points is not in the legend.
    """
    for part in range(10):
        for index, (label, (x, y)) in enumerate(groups.items()):
            step = max(1, -(-len(x) // MAX_POINTS))
            x_of_part, y_of_part = x[::step][part::10], y[::step][part::10]
            if x_of_part:
                axis.scatter(
                    x_of_part, y_of_part, s=7, linewidths=0.6, alpha=0.6, rasterized=True, color=RAMP[index],
                    marker=MARKERS[index], label=None if part else _legend_label(label),
                )  # fmt: skip


def bars(axis: Axes, index: int | None, x: Sequence[float], heights: Sequence[float], width: float, label: str) -> None:
    """Draws the bars of the run number `index`, centered at `x`; of the reference, without hatch, where it is None."""
    style = {"color": REFERENCE}
    if index is not None:
        style = {"color": COLORS[index % len(COLORS)], "hatch": HATCHES[index % len(HATCHES)]}
    axis.bar(x, heights, width, label=_legend_label(label), edgecolor="white", **style)


def _legend_label(label: str) -> str:
    """In lines, after a space: matplotlib leaves labels that begin with an underscore out of the legend."""
    return f" {textwrap.fill(label.strip(), NAME_LENGTH)}"


def finish(axis: Axes, *, title: str = "", grid: bool = True, **properties: Any) -> None:
    """Completes a panel when everything is drawn, with properties such as `yscale`; an empty one is "not defined"."""
    axis.set(**properties)
    axis.set_title(textwrap.fill(title, NAME_LENGTH), parse_math=False)
    for direction in (axis.xaxis, axis.yaxis):
        if direction.get_scale() == "log":
            _label_logarithms(direction)
    if axis.has_data() and axis.get_yscale() == "linear":
        axis.ticklabel_format(axis="y", useOffset=False)
    if grid:
        axis.grid(color="0.9")
        axis.set_axisbelow(True)
    if not axis.has_data():
        axis.text(0.5, 0.5, "not defined", transform=axis.transAxes, ha="center", va="center", color="0.4")


def _label_logarithms(direction: Axis) -> None:
    """Plain numbers, at even distances or at 1, 2 and 5 of each power of ten of a logarithmic axis."""
    from matplotlib import ticker

    low, high = direction.get_view_interval()
    powers = math.log10(high / low) if 0 < low < high < math.inf else 0.0
    if powers < 1:
        direction.set_major_locator(ticker.MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
        direction.set_minor_locator(ticker.NullLocator())
    else:
        direction.set_major_locator(ticker.LogLocator(subs=(1, 2, 5) if powers < 3 else (1,)))
    direction.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:,.12g}"))
    direction.set_minor_formatter(ticker.NullFormatter())


def finish_figure(figure: Figure) -> Figure:
    """Completes a figure when all of its panels are finished, and returns it.

    One legend for all panels, with each label once, is put below them; the figure grows by it.
    """
    handles: dict[str, Any] = {}
    for axis in figure.axes:
        for handle in axis.get_legend_handles_labels()[0]:
            handles.setdefault(handle.get_label(), handle)
    if handles:
        width = 0.5 + 0.09 * max(len(line) for label in handles for line in label.splitlines())  # inches of an entry
        columns = max(1, min(len(handles), int(figure.get_figwidth() / width)))
        figure.set_figheight(figure.get_figheight() + 0.22 * sum(label.count("\n") + 1 for label in handles) / columns)
        legend = figure.legend(handles=list(handles.values()), loc="outside lower center", ncols=columns, markerscale=2)
        for text in legend.get_texts():
            text.set_text(text.get_text().strip())
            text.set_parse_math(False)
    return figure


def save(figure: Figure, file: str | Path | IO[bytes], kind: str) -> None:
    """Writes a picture as "png" (150 dots per inch), "svg" or "pdf". The same picture is always the same bytes."""
    from matplotlib import rc_context

    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    with rc_context({"svg.hashsalt": "agg-fairseq"}):
        figure.savefig(file, format=kind, dpi=150, metadata=undated.get(kind))
