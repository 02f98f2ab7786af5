"""The pictures of the papers. Groups and runs differ in colour and in marker or dash, so that grey will do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # needs no screen
import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from torch import Tensor

COLORS = ("#0072B2", "#E69F00", "#D55E00", "#009E73", "#CC79A7", "#56B4E9")  # Okabe and Ito
MARKERS = ("o", "^", "x")
DASHES = ("-", "--", ":", "-.")
POINTS_PER_GROUP = 2000


def projection(panels: Mapping[str, Mapping[str, Tensor]]) -> Figure:
    """Embeddings in the plane of their first two singular directions (Yu et al. 2022, Figs. 1 and 3).

    Args:
        panels: for each model, for each frequency group (most frequent first), its rows (n, 2). Larger groups are
            thinned out evenly to 2,000 points each.

    Returns:
        One panel per model, on a common scale.
    """
    figure, axes = plt.subplots(
        1, len(panels), figsize=(4.2 * len(panels), 4), squeeze=False, sharex=True, sharey=True, layout="constrained"
    )
    for axis, (name, groups) in zip(axes[0], panels.items(), strict=True):
        for (group, points), color, marker in zip(groups.items(), COLORS, MARKERS, strict=False):
            shown = points[:: max(1, -(-len(points) // POINTS_PER_GROUP))]
            axis.scatter(*shown.t().tolist(), s=7, c=color, marker=marker, linewidths=0.6, alpha=0.5, label=group)
        axis.axhline(0, color="0.8", linewidth=0.8, zorder=0)
        axis.axvline(0, color="0.8", linewidth=0.8, zorder=0)
        axis.set_title(name)
        axis.set_xlabel("first singular direction")
    axes[0][0].set_ylabel("second singular direction")
    axes[0][0].legend(markerscale=2, framealpha=0.9)
    return figure


def singular_values(values: Mapping[str, Tensor]) -> Figure:
    """Singular values of the embeddings, divided by the largest (Yu et al. 2022, Fig. 3c).

    Args:
        values: for each model, (D,) from the largest down.
    """
    figure, axis = plt.subplots(figsize=(5, 3.6), layout="constrained")
    for index, (name, line) in enumerate(values.items()):
        axis.plot(line.tolist(), color=COLORS[index % 6], linestyle=DASHES[index % 4], label=name)
    axis.set(xlabel="index", ylabel="singular value / largest", yscale="log")
    axis.grid(color="0.9")
    axis.legend()
    return figure


def rare_tokens(curves: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> Figure:
    """Size of the rare group over the updates (Yu et al. 2022, Fig. 4).

    Args:
        curves: for each run, updates and sizes.
    """
    figure, axis = plt.subplots(figsize=(5, 3.6), layout="constrained")
    for index, (name, (updates, sizes)) in enumerate(curves.items()):
        axis.plot(updates, sizes, color=COLORS[index % 6], linestyle=DASHES[index % 4], label=name)
    axis.set(xlabel="updates", ylabel="rare tokens")
    axis.set_ylim(bottom=0)
    axis.grid(color="0.9")
    axis.legend()
    return figure


def save(figure: Figure, path: Path) -> None:
    """Writes PNG, SVG or PDF, as the name's ending says."""
    figure.savefig(path, dpi=150)
    plt.close(figure)
