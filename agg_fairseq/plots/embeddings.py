"""Pictures of the embeddings of models.

Parameters of these functions: checkpoints: models of fairseq or transformers over one vocabulary,
    by the names of their panels or curves. data, train_text, groups: as in `evaluation`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import torch

from ..checkpoints import Models
from ..data.subwords import find_word
from ..errors import UserError
from ..evaluation.inputs import load_vocabulary
from . import style


def projection(
    checkpoints: Models,
    data: str | Path | None = None,
    *,
    train_text: str | Path | None = None,
    groups: str = "types",
) -> style.Figure:
    """Draws the embeddings in the plane of their first two singular directions, colored by
    frequency group.

    A panel for each model, on the same scale, with the middle 99% of the rows along each axis, and
    at most 2,000 points of each group.

    Reference: Yu et al. (2022), Figs. 1 and 3; Yu et al. (2021), Figs. 1, 3 and 4; Gao et al.
        (2019), Figs. 1a and 2a.
    """
    members = {"tokens": slice(None)}
    if data is not None or train_text is not None:
        members = load_vocabulary(checkpoints, data, train_text).groups(groups).all_members()
    projected, ranges = [], []
    for model in checkpoints.values():
        points = model.output_embedding.embeddings.principal_projection()  # V x 2
        projected.append(points)
        ranges.append(points.quantile(points.new_tensor([0.005, 0.995]), dim=0))
    lows, highs = torch.stack(ranges, 1)  # M x 2 each
    low, high = lows.amin(0), highs.amax(0)
    (x, y), reach = ((low + high) / 2).tolist(), 0.6 * (high - low).max().item() or 1.0
    figure, panels = style.new_panels(len(checkpoints), width=4.2, height=4.9)
    for axis, name, points in zip(panels, checkpoints, projected, strict=True):
        style.scatter(axis, {group: points[rows].t().tolist() for group, rows in members.items()})
        style.finish(
            axis, title=name, aspect="equal",
            xlim=(x - reach, x + reach), ylim=(y - reach, y + reach),
            xlabel="first singular direction", ylabel="second singular direction",
        )  # fmt: skip
    return style.finish_figure(figure)


def singular_values(checkpoints: Models) -> style.Figure:
    """Draws the singular values of the embeddings, divided by the largest, on a logarithmic scale.

    A curve for each model; the slower it falls, the more isotropic are the embeddings.

    Reference: Yu et al. (2022), Fig. 3c; Gao et al. (2019), Fig. 2b.
    """
    figure, (axis,) = style.new_panels()
    for index, (name, checkpoint) in enumerate(checkpoints.items()):
        values = checkpoint.output_embedding.embeddings.singular_values().tolist()
        style.line(axis, index, range(1, len(values) + 1), values, name)
    style.finish(axis, xlabel="index", ylabel="singular value / largest", yscale="log")
    return style.finish_figure(figure)


def similarity(
    checkpoints: Models,
    data: str | Path | None = None,
    *,
    train_text: str | Path | None = None,
    words: Sequence[str],
    groups: str = "types",
) -> style.Figure:
    """Draws the cosine of words with every other token, by the frequency rank of the token.

    A row of panels for each word, with a panel for each model. Tokens are colored by frequency
    group.

    Args:
        words: each a token, as dict.txt or tokenizer.json has it; for pieces that begin a word,
            without the mark.

    Reference: Yu et al. (2021), Figs. 5 to 7.
    """
    vocabulary = load_vocabulary(checkpoints, data, train_text)
    members = vocabulary.groups(groups).all_members()
    rank = vocabulary.counts.argsort(descending=True, stable=True).argsort() + 1  # V
    row_by_token = {token: row for row, token in enumerate(vocabulary.tokens)}
    words = list(map(find_word(row_by_token), words))
    for word in words:
        if word not in row_by_token:
            raise UserError(
                f"--words: found no token {word!r}; expected one of dict.txt or tokenizer.json"
            )
    size = len(checkpoints)
    figure, panels = style.new_panels(len(words) * size, size, width=3.8, height=3.0, sharey=True)
    pairs = itertools.product(words, checkpoints.items())
    for axis, (word, (name, model)) in zip(panels, pairs, strict=True):
        token, weight = row_by_token[word], model.output_embedding.weight  # V x D
        cosines = torch.nn.functional.cosine_similarity(weight, weight[token][None], dim=1)  # V
        points = {}
        for group, rows in members.items():
            rows = rows[rows != token]
            points[group] = (rank[rows].tolist(), cosines[rows].tolist())
        style.scatter(axis, points)
        style.finish(axis, title=f"{word}, {name}", xlabel="frequency rank", ylabel="cosine")
    return style.finish_figure(figure)
