"""How often each token occurs in the training split, by rank (Gao et al. 2019, Fig. 3)."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from ...data.binarized import count_tokens, load_dictionary
from ...errors import UserError
from ..naming import names_of, own_name
from . import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUMMARY = "occurrences of each token in the training split, by rank"
INPUT = "DATA"
NAMED = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """None of its own."""


def draw(arguments: argparse.Namespace) -> Figure:
    """A curve per folder of fairseq-preprocess, per language of a parallel one."""
    names = names_of(arguments.inputs, arguments.name, own_name)
    curves = [curve for name, data in zip(names, arguments.inputs, strict=True) for curve in _curves(name, data)]
    figure, axes = style.new_figure()
    for index, (name, counts) in enumerate(curves):
        seen = counts[counts > 0].sort(descending=True).values.tolist()
        style.line(axes[0][0], index, range(1, len(seen) + 1), seen, name)
    style.finish(axes[0][0], xlabel="rank", ylabel="occurrences", xscale="log", yscale="log")
    return style.finish_figure(figure)


def _curves(name: str, data: str) -> Iterator[tuple[str, Tensor]]:
    if (Path(data) / "dict.txt").is_file():
        yield name, count_tokens(data, load_dictionary(data))
        return
    splits = sorted(path.name.removesuffix(".bin") for path in Path(data).glob("train.*-*.*.bin"))
    if not splits:
        raise UserError(f"{data}: found neither dict.txt nor train.*-*.*.bin; expected a folder of fairseq-preprocess")
    for split in splits:
        language = split.rsplit(".", 1)[1]
        yield f"{name} {language}", count_tokens(data, load_dictionary(data, f"dict.{language}.txt"), split)
