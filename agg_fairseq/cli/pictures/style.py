"""What the pictures have in common. Runs and groups differ in colour and in marker, dash or hatch: grey will do."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from ...errors import UserError

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS = ("#0072B2", "#E69F00", "#D55E00", "#009E73", "#CC79A7", "#56B4E9")  # Okabe and Ito
MARKERS = ("o", "^", "x", "s", "D", "v")
DASHES = ("-", "--", ":", "-.")
HATCHES = ("", "///", "...", "xxx", "\\\\\\", "+++")
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


def line(axis: Axes, index: int, x: Sequence[float], y: Sequence[float], label: str, *, marked: bool = False) -> None:
    """The curve of the run number `index`, each of its points marked where there are few."""
    style = {"color": COLORS[index % len(COLORS)], "linestyle": DASHES[index % len(DASHES)]}
    if marked:
        style |= {"marker": MARKERS[index % len(MARKERS)], "markersize": "4"}
    axis.plot(x, y, label=label, **style)


def points(axis: Axes, index: int, x: Sequence[float], y: Sequence[float], label: str) -> None:
    """A cloud of points, of the group number `index`, thinned out evenly to 2,000."""
    step = max(1, -(-len(x) // POINTS))
    style = {"color": COLORS[index % len(COLORS)], "marker": MARKERS[index % len(MARKERS)]}
    axis.scatter(x[::step], y[::step], s=7, linewidths=0.6, alpha=0.5, label=label, rasterized=True, **style)


def bars(axis: Axes, index: int, x: Sequence[float], heights: Sequence[float], width: float, label: str) -> None:
    """The bars of the run number `index`."""
    style = {"color": COLORS[index % len(COLORS)], "hatch": HATCHES[index % len(HATCHES)]}
    axis.bar(x, heights, width, label=label, edgecolor="white", **style)


def finish(axis: Axes, *, legend: bool = True, **labels: Any) -> None:
    """Labels, a light grid and a legend."""
    axis.set(**labels)
    axis.grid(color="0.9")
    axis.set_axisbelow(True)
    if legend:
        axis.legend(markerscale=2, framealpha=0.9)


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
