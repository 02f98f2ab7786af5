"""Singular values of the embeddings, divided by the largest (Yu et al. 2022, Fig. 3c; Gao et al. 2019, Fig. 2b)."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ...metrics import singular_values
from ..embeddings import load_embeddings
from ..naming import numbered
from . import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUMMARY = "singular values of the output embeddings, largest = 1"
INPUT = "CKPT"
NAMED = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """None of its own."""


def draw(arguments: argparse.Namespace) -> Figure:
    """A curve per checkpoint."""
    figure, axes = style.new_figure()
    for index, name, path in numbered(arguments.inputs, arguments.name):
        values = singular_values(load_embeddings(path).weight).tolist()
        style.line(axes[0][0], index, range(1, len(values) + 1), values, name)
    style.finish(axes[0][0], xlabel="index", ylabel="singular value / largest", yscale="log")
    return style.finish_figure(figure)
