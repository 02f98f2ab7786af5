"""Cosine of a word with every token, by frequency rank (Yu et al. 2021, Figs. 5 to 7)."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from torch import Tensor
from torch.nn import functional

from ...errors import UserError
from ...metrics.groups import GROUPS
from ..embeddings import Vocabulary, add_vocabulary, load_all
from ..naming import names_of
from . import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUMMARY = "cosine of a word with every token, by frequency rank"
INPUT = "CKPT"
NAMED = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The words, and where the frequencies come from."""
    add_vocabulary(parser)
    parser.add_argument(
        "--words", nargs="+", required=True, metavar="WORD", help="tokens of the dictionary, a row of panels for each"
    )


def draw(arguments: argparse.Namespace) -> Figure:
    """Rows of panels for each word, a panel for each checkpoint in them, on a common scale."""
    names = names_of(arguments.inputs, arguments.name)
    embeddings, vocabulary = load_all(arguments.inputs, arguments.data)
    tokens = [_index(vocabulary, word) for word in arguments.words]
    size, shared = {"width": 3.8, "height": 3.0}, {"sharex": True, "sharey": True}
    labels = {"xlabel": "frequency rank", "ylabel": "cosine"}
    figure, panels = style.new_panels(len(names), len(tokens), **size, **labels, **shared)
    for of_word, word, token in zip(panels, arguments.words, tokens, strict=True):
        for axis, name, one in zip(of_word, names, embeddings, strict=True):
            cosines = functional.cosine_similarity(one.weight, one.weight[token][None], dim=1)  # V
            _draw_panel(axis, cosines, vocabulary, token, arguments.groups)
            style.finish(axis, title=f"{word}, {name}")
    return style.finish_figure(figure)


def _index(vocabulary: Vocabulary, word: str) -> int:
    index = vocabulary.dictionary.indices.get(word)
    if index is None:
        raise UserError(f"--words: found no token {word!r} in the dictionary; expected a token as dict.txt has it")
    return int(index)


def _draw_panel(axis: Axes, cosines: Tensor, vocabulary: Vocabulary, token: int, grouping: str) -> None:
    rank = vocabulary.counts.argsort(descending=True, stable=True).argsort() + 1  # V
    groups = vocabulary.groups(grouping)
    for index, group in enumerate(GROUPS):
        members = groups.members(group)
        members = members[members != token]
        style.points(axis, index, rank[members].tolist(), cosines[members].tolist(), label=group)
