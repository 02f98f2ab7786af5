"""Isotropy of frequent and rare embeddings and the cosine between them over the updates (Yu et al. 2022, Fig. 2)."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING

from ...metrics import FrequencyGroups, isotropy, mean_cosine_between
from ..embeddings import Embeddings
from . import style
from .over_updates import add_arguments, curves

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["INPUT", "NAMED", "SUMMARY", "add_arguments", "draw"]
SUMMARY = "isotropy of frequent and rare embeddings, and the cosine between them, over the updates"
INPUT = "RUN"
NAMED = True
PANELS = ("I(W) frequent", "I(W) rare", "cosine of rare and frequent")


def draw(arguments: argparse.Namespace) -> Figure:
    """A panel for each of the three, a curve per run in each."""
    figure, axes = style.new_figure(columns=len(PANELS), width=4.0, sharex=True)
    for index, (name, (updates, values)) in enumerate(curves(arguments, _measure)):
        for axis, of_panel in zip(axes[0], zip(*values, strict=True), strict=True):
            style.line(axis, index, updates, of_panel, name, marked=True)
    for axis, title in zip(axes[0], PANELS, strict=True):
        style.finish(axis, title=title, xlabel="updates")
    axes[0][0].set_ylim(0, 1)
    axes[0][1].set_ylim(0, 1)
    return style.finish_figure(figure)


def _measure(embeddings: Embeddings, groups: FrequencyGroups) -> list[float]:
    """In the order of `PANELS`; NaN where a group is empty, or, for the cosine, has only zeros."""
    both = [embeddings.weight[groups.members(group)] for group in ("frequent", "rare")]
    cosine = mean_cosine_between(*both) if all(weight.any() for weight in both) else math.nan
    return [*(isotropy(weight) if len(weight) else math.nan for weight in both), cosine]
