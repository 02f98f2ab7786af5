"""What the pictures have in common. Runs and groups differ in colour and in marker, dash or hatch: grey will do.

Names and tokens are the user's, and never taken for markup: a `$` is a dollar, a leading underscore is shown.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from ...errors import UserError

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox

COLORS = ("#0072B2", "#E69F00", "#D55E00", "#009E73", "#CC79A7", "#56B4E9")  # Okabe and Ito
MARKERS = ("o", "^", "x", "s", "D", "v", "P")
DASHES = ("-", "--", ":", "-.", (0, (5, 1, 1, 1, 1, 1)))
HATCHES = ("///", "...", "xxx", "\\\\\\", "+++", "ooo", "---")
"""As many of each as have no divisor in common with the colours: 30 runs are drawn before two look alike."""
REFERENCE = "0.25"
"""The dark grey of what the runs are compared with, which has no hatch."""
PER_ROW = 3
"""As many panels stand side by side."""
LINE = 28
"""A longer name is broken into lines."""
TITLE_LINE = 0.2
"""Height of another line of a title, in inches."""
POINTS = 2000
"""As many points of a group are shown at most."""


def new_figure(
    rows: int = 1, columns: int = 1, *, width: float = 5.0, height: float = 3.6, **options: Any
) -> tuple[Figure, np.ndarray]:
    """A figure and its axes (rows, columns), each `width` by `height` inches.

    Raises:
        UserError: matplotlib is missing.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise UserError("plot: matplotlib is missing; pip install 'agg-fairseq[eval]'") from error
    matplotlib.use("Agg")  # needs no screen
    from matplotlib import pyplot

    size = (width * columns, height * rows)
    return pyplot.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained", **options)


def new_panels(
    count: int, blocks: int = 1, *, width: float, height: float = 3.6, xlabel: str, ylabel: str, **options: Any
) -> tuple[Figure, list[list[Axes]]]:
    """A figure of `blocks` times `count` panels, three side by side, each block on a new row.

    Returns:
        The figure; its panels, block by block. The outer ones have the labels.
    """
    columns = min(count, PER_ROW)
    rows = -(-count // columns)
    figure, grid = new_figure(rows * blocks, columns, width=width, height=height, **options)
    panels = []
    for block in range(blocks):
        places = list(grid[block * rows : (block + 1) * rows].flat)
        for unused in places[count:]:
            unused.remove()
        panels.append(places[:count])
        for index, axis in enumerate(panels[-1]):
            on_last_row = index >= (rows - 1) * columns
            if index + columns >= count and not (on_last_row and block < blocks - 1):  # none below it
                axis.set_xlabel(xlabel)
                axis.tick_params(labelbottom=True)
            if index % columns == 0:
                axis.set_ylabel(ylabel)
    return figure, panels


def in_lines(name: str) -> str:
    """A name in lines of at most 28 characters, broken after `-`, `_`, `/` or a space where there is one."""
    flat = " ".join(name.split())
    lines = re.findall(rf".{{1,{LINE}}}$|.{{1,{LINE - 1}}}[-_/ ]|.{{{LINE}}}", flat)
    return "\n".join(line.strip() for line in lines)


def line(axis: Axes, index: int, x: Sequence[float], y: Sequence[float], label: str, *, marked: bool = False) -> None:
    """The curve of the run number `index`, each of its points marked where there are few; NaN is a gap."""
    if all(math.isnan(value) for value in y):
        return
    style: dict[str, Any] = {"color": COLORS[index % len(COLORS)], "linestyle": DASHES[index % len(DASHES)]}
    if marked:
        style |= {"marker": MARKERS[index % len(MARKERS)], "markersize": 4}
    axis.plot(x, y, label=_kept(label), **style)


def level(axis: Axes, index: int | None, y: float, label: str) -> None:
    """A horizontal line, number `index` of those that a curve number 0 is compared with; None, of the reference.

    There is none for NaN.
    """
    if not math.isnan(y):
        style = {"color": REFERENCE}
        if index is not None:
            colors, dashes = COLORS[1:], DASHES[1:]  # 5 and 4: 20 are drawn before two look alike
            style = {"color": colors[index % len(colors)], "linestyle": dashes[index % len(dashes)]}
        axis.axhline(y, label=_kept(label), **style)
        axis.autoscale_view()  # a line just beyond the curves would lie on the frame


def points(axis: Axes, index: int, x: Sequence[float], y: Sequence[float], label: str) -> None:
    """A cloud of points, of the group number `index`, thinned out evenly to 2,000."""
    if not x:
        return
    step = max(1, -(-len(x) // POINTS))
    style = {"color": COLORS[index % len(COLORS)], "marker": MARKERS[index % len(MARKERS)]}
    axis.scatter(x[::step], y[::step], s=7, linewidths=0.6, alpha=0.5, label=_kept(label), rasterized=True, **style)


def bars(axis: Axes, index: int | None, x: Sequence[float], heights: Sequence[float], width: float, label: str) -> None:
    """The bars of the run number `index`; None, of the reference."""
    style = {"color": REFERENCE}
    if index is not None:
        style = {"color": COLORS[index % len(COLORS)], "hatch": HATCHES[index % len(HATCHES)]}
    axis.bar(x, heights, width, label=_kept(label), edgecolor="white", **style)


def finish(axis: Axes, *, title: str = "", grid: bool = True, **labels: Any) -> None:
    """Title, labels and a light grid; an empty panel says so."""
    axis.set(**labels)
    axis.set_title(in_lines(title), parse_math=False)
    if grid:
        axis.grid(color="0.9")
        axis.set_axisbelow(True)
    if not axis.has_data():
        axis.text(0.5, 0.5, "not defined", transform=axis.transAxes, ha="center", va="center", color="0.4")


def finish_figure(figure: Figure) -> Figure:
    """A legend of all panels below them, in as many columns as fit; the figure grows by it and by the titles' lines."""
    titles: dict[int, int] = {}  # lines beyond the first, by row
    for axis in figure.axes:
        row = axis.get_subplotspec().rowspan.start
        titles[row] = max(titles.get(row, 0), axis.get_title().count("\n"))
    figure.set_figheight(figure.get_figheight() + TITLE_LINE * sum(titles.values()))
    handles = _labelled(figure.axes)
    for rows in range(1, len(handles) + 1):
        columns = -(-len(handles) // rows)
        box = _legend(figure, handles, columns)
        if columns == 1 or box.width <= figure.bbox.width:
            figure.set_figheight(figure.get_figheight() + box.height / figure.dpi)
            break
        figure.legends[0].remove()
    return figure


def _kept(label: str) -> str:
    """With a space before it, or matplotlib would leave out a name that begins with an underscore."""
    return f" {label}"


def _labelled(axes: Sequence[Axes]) -> list[Any]:
    """What the legend shows: all of the first panel, and of the others what is not there yet."""
    shown: list[Any] = []
    for axis in axes:
        known = {handle.get_label() for handle in shown}
        shown += [handle for handle in axis.get_legend_handles_labels()[0] if handle.get_label() not in known]
    return shown


def _legend(figure: Figure, handles: Sequence[Any], columns: int) -> Bbox:
    """Puts a legend below the panels, and measures it."""
    legend = figure.legend(handles=handles, loc="outside lower center", ncols=columns, markerscale=2)
    for text, handle in zip(legend.get_texts(), handles, strict=True):
        text.set_text(in_lines(handle.get_label()))
        text.set_parse_math(False)
    return legend.get_window_extent(figure.canvas.get_renderer())


def save(figure: Figure, file: Path | IO[bytes], kind: str) -> None:
    """Writes a picture, the same each time it is drawn, and forgets it.

    Args:
        figure: is closed.
        file: to write.
        kind: "png", "svg" or "pdf".
    """
    from matplotlib import pyplot, rc_context

    dated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    with rc_context({"svg.hashsalt": "agg-fairseq"}):
        figure.savefig(file, format=kind, dpi=150, metadata=dated.get(kind))
    pyplot.close(figure)


def svg(figure: Figure) -> bytes:
    """A picture as SVG."""
    file = io.BytesIO()
    save(figure, file, "svg")
    return file.getvalue()
