"""Nearest neighbors of embeddings by cosine."""

from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from .isotropy import check_embeddings, row_chunks
from .word_similarity import DECIMALS


def nearest_neighbors(
    weight: Tensor, queries: Tensor, k: int, excluded: Sequence[Collection[int]]
) -> list[list[tuple[int, float]]]:
    """The k rows of `weight` with the largest cosine to each query; ties go to the first row.

    Computed in float64, a chunk of rows at a time. Cosines are rounded to 12 decimals, so that rows of the same
    direction tie.

    Args:
        weight: (V, D) embeddings; rows of zeros are never neighbors.
        queries: (Q, D) vectors, none of them zero.
        k: number of neighbors, at least 1; fewer are returned where there are no more.
        excluded: for each query, the rows that are not returned.

    Returns:
        For each query, pairs of a row and its cosine, in [−1, 1], the nearest first.
    """
    if not queries.any(dim=1).all():
        raise ValueError("expected queries that are not all zeros")
    directions = torch.nn.functional.normalize(queries.detach().double(), dim=1, eps=torch.finfo(torch.float64).tiny)
    of_chunks = []
    for rows in row_chunks(check_embeddings(weight)):
        lengths = rows.norm(dim=1)  # n
        cosines = (directions @ (rows / lengths[:, None]).t()).round(decimals=DECIMALS).clamp(-1, 1)  # Q x n
        of_chunks.append(cosines.masked_fill(lengths == 0, -torch.inf))
    cosines = torch.cat(of_chunks, dim=1)  # Q x V
    for of_query, rows in zip(cosines, excluded, strict=True):
        of_query[list(rows)] = -torch.inf
    ranked = cosines.sort(dim=1, descending=True, stable=True)
    pairs = zip(ranked.indices[:, :k].tolist(), ranked.values[:, :k].tolist(), strict=True)
    return [[pair for pair in zip(*of_query, strict=True) if pair[1] > -torch.inf] for of_query in pairs]
