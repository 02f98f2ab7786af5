"""The mean inner product between embeddings of one frequency group over the updates (Yu et al. 2021, Fig. 2)."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING

from ...metrics import FrequencyGroups, mean_inner_product
from ...metrics.groups import GROUPS
from ..embeddings import Embeddings
from . import style
from .over_updates import add_arguments, curves

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["INPUT", "NAMED", "SUMMARY", "add_arguments", "draw"]
SUMMARY = "mean inner product between embeddings of the same frequency group, over the updates"
INPUT = "RUN"
NAMED = True


def draw(arguments: argparse.Namespace) -> Figure:
    """A panel per run, a curve per group in each, on a common scale."""
    labels = {"xlabel": "updates", "ylabel": "mean inner product"}
    figure, (panels,) = style.new_panels(len(arguments.inputs), width=4.0, **labels, sharey=True)
    for axis, (name, (updates, values)) in zip(panels, curves(arguments, _measure), strict=True):
        for index, (group, of_group) in enumerate(zip(GROUPS, zip(*values, strict=True), strict=True)):
            style.line(axis, index, updates, of_group, group, marked=True)
        style.finish(axis, title=name)
    return style.finish_figure(figure)


def _measure(embeddings: Embeddings, groups: FrequencyGroups) -> list[float]:
    """Of each group; NaN where it has no pair of tokens."""
    members = [embeddings.weight[groups.members(group)] for group in GROUPS]
    return [mean_inner_product(weight) if len(weight) > 1 else math.nan for weight in members]
