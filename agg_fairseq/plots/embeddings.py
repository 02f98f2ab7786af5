"""Pictures of the output embeddings of models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from .. import metrics
from ..errors import UserError
from ..evaluation.inputs import load_embedding_vocabulary
from ..metrics.groups import GROUPS
from ..sources import EmbeddingSource
from . import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def projection(
    checkpoints: Mapping[str, EmbeddingSource],
    data: str | Path | None = None,
    *,
    text: str | Path | None = None,
    groups: str = "types",
) -> Figure:
    """Draws the embeddings in the plane of their first two singular directions, colored by frequency group.

    A panel for each model, all on the same scale; at most 2,000 points of each group.

    Args:
        checkpoints: by the titles of their panels; language models or translation models over one dictionary, or models
            of transformers.
        data: folder written by `fairseq-preprocess`, with the training split, from which the frequencies are counted.
        text: for models of transformers, a text in UTF-8, in which their tokens are counted, instead of `data`. Without
            either, all tokens have the same color.
        groups: frequent, medium and rare tokens by one of `data.vocabulary.GROUPINGS`.

    Raises:
        UserError: as `load_embedding_vocabulary`.

    Reference: Yu et al. (2022), Figs. 1 and 3; Yu et al. (2021), Figs. 1, 3 and 4; Gao et al. (2019), Figs. 1a and 2a.
    """
    by_frequency = None
    if data is not None or text is not None:
        by_frequency = load_embedding_vocabulary(checkpoints, data, text).groups(groups)
    figure, (panels,) = style.new_panels(
        len(checkpoints), width=4.2, height=4.0, sharex=True, sharey=True,
        xlabel="first singular direction", ylabel="second singular direction",
    )  # fmt: skip
    for axis, (name, checkpoint) in zip(panels, checkpoints.items(), strict=True):
        projected = metrics.principal_projection(checkpoint.output_embedding.weight)  # V x 2
        for index, group in enumerate(("tokens",) if by_frequency is None else GROUPS):
            members = slice(None) if by_frequency is None else by_frequency.members(group)
            style.points(axis, index, *projected[members].t().tolist(), label=group)
        axis.axhline(0, color="0.8", linewidth=0.8, zorder=0)
        axis.axvline(0, color="0.8", linewidth=0.8, zorder=0)
        style.finish(axis, title=name, grid=False)
    return style.finish_figure(figure)


def singular_values(checkpoints: Mapping[str, EmbeddingSource]) -> Figure:
    """Draws the singular values of the embeddings, divided by the largest, on a logarithmic scale.

    A curve for each model; the slower it falls, the more isotropic are the embeddings.

    Args:
        checkpoints: by the names of their curves; checkpoints of fairseq-train or models of transformers.

    Raises:
        UserError: a model has no output embedding, or is damaged.

    Reference: Yu et al. (2022), Fig. 3c; Gao et al. (2019), Fig. 2b.
    """
    figure, axes = style.new_figure()
    for index, (name, checkpoint) in enumerate(checkpoints.items()):
        values = metrics.singular_values(checkpoint.output_embedding.weight).tolist()
        style.line(axes[0][0], index, range(1, len(values) + 1), values, name)
    style.finish(axes[0][0], xlabel="index", ylabel="singular value / largest", yscale="log")
    return style.finish_figure(figure)


def similarity(
    checkpoints: Mapping[str, EmbeddingSource],
    data: str | Path | None = None,
    *,
    text: str | Path | None = None,
    words: Sequence[str],
    groups: str = "types",
) -> Figure:
    """Draws the cosine of words with every other token, by the frequency rank of the token.

    A block of panels for each word, with a panel for each checkpoint in it, all on the same scale. Tokens are colored
    by frequency group.

    Args:
        checkpoints: by their names; language models or translation models over one dictionary, or models of
            transformers with the same tokenizer.
        data: folder written by `fairseq-preprocess`, with the training split, from which the frequencies are counted.
        text: for models of transformers, a text in UTF-8, in which their tokens are counted, instead of `data`.
        words: each a token, as dict.txt or tokenizer.json has it.
        groups: frequent, medium and rare tokens by one of `data.vocabulary.GROUPINGS`.

    Raises:
        UserError: a word is no token of the dictionary; or as `projection`.

    Reference: Yu et al. (2021), Figs. 5 to 7.
    """
    vocabulary = load_embedding_vocabulary(checkpoints, data, text)
    members = vocabulary.groups(groups)
    rank = vocabulary.counts.argsort(descending=True, stable=True).argsort() + 1  # V
    row_of = {token: row for row, token in enumerate(vocabulary.tokens)}
    tokens = []
    for word in words:
        if word not in row_of:
            raise UserError(
                f"--words: found no token {word!r} in the dictionary; expected a token as dict.txt or tokenizer.json "
                "has it"
            )
        tokens.append(row_of[word])
    figure, panels = style.new_panels(
        len(checkpoints), len(words), width=3.8, height=3.0, sharex=True, sharey=True,
        xlabel="frequency rank", ylabel="cosine",
    )  # fmt: skip
    for panels_of_word, word, token in zip(panels, words, tokens, strict=True):
        for axis, (name, checkpoint) in zip(panels_of_word, checkpoints.items(), strict=True):
            weight = checkpoint.output_embedding.weight  # V x D
            cosines = torch.nn.functional.cosine_similarity(weight, weight[token][None], dim=1)  # V
            for index, group in enumerate(GROUPS):
                others = members.members(group)
                others = others[others != token]
                style.points(axis, index, rank[others].tolist(), cosines[others].tolist(), label=group)
            style.finish(axis, title=f"{word}, {name}")
    return style.finish_figure(figure)
