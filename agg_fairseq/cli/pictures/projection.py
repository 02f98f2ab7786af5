"""Embeddings in the plane of their first two singular directions (Yu et al. 2022, Figs. 1, 3; 2021, Figs. 1, 3, 4)."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ...metrics import principal_projection
from ...metrics.groups import GROUPS
from ..embeddings import add_vocabulary, load_all
from ..naming import names_of
from . import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUMMARY = "SVD projection of the output embeddings, coloured by frequency group"
INPUT = "CKPT"
NAMED = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where the frequencies come from."""
    add_vocabulary(parser)


def draw(arguments: argparse.Namespace) -> Figure:
    """A panel per checkpoint, on a common scale."""
    names = names_of(arguments.inputs, arguments.name)
    embeddings, vocabulary = load_all(arguments.inputs, arguments.data)
    groups = vocabulary.groups(arguments.groups)
    size, shared = {"width": 4.2, "height": 4.0}, {"sharex": True, "sharey": True}
    labels = {"xlabel": "first singular direction", "ylabel": "second singular direction"}
    figure, (panels,) = style.new_panels(len(names), **size, **labels, **shared)
    for axis, name, one in zip(panels, names, embeddings, strict=True):
        projected = principal_projection(one.weight)
        for index, group in enumerate(GROUPS):
            style.points(axis, index, *projected[groups.members(group)].t().tolist(), label=group)
        axis.axhline(0, color="0.8", linewidth=0.8, zorder=0)
        axis.axvline(0, color="0.8", linewidth=0.8, zorder=0)
        style.finish(axis, title=name, grid=False)
    return style.finish_figure(figure)
