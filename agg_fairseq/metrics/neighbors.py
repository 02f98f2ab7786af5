"""Nearest neighbors of embeddings by cosine."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from .word_similarity import DECIMALS

CHUNK_ROWS = 8192


def nearest_neighbors(
    weight: Tensor, queries: Tensor, k: int, excluded: Sequence[Collection[int]]
) -> list[list[tuple[int, float]]]:
    """The k rows of `weight` with the largest cosine to each query; ties go to the first row.

    Computed in float64, a chunk of rows at a time. Cosines are rounded to 12 decimals, so that rows of the same
    direction tie.

    Args:
        weight: (V, D) embeddings; rows of zeros are never neighbors.
        queries: (Q, D) vectors, none of them zero.
        k: number of neighbors, at least 1.
        excluded: for each query, the rows that are not returned.

    Returns:
        For each query, at most k pairs of a row and its cosine, in [−1, 1], the nearest first.

    Raises:
        ValueError: shapes that do not fit, k below 1, a query of zeros, an excluded row beyond `weight`, or a value
            that is not finite.

    Reference: Yu et al. (2022), Tables 13 and 14; Yu et al. (2021), Tables 10 to 12.
    """
    _check(weight, queries, k, excluded)
    directions = _directions(queries.detach().double())
    best = directions.new_empty(len(queries), 0)
    rows = torch.empty(len(queries), 0, dtype=torch.int64, device=best.device)
    for start in range(0, len(weight), CHUNK_ROWS):
        cosines = _cosines(directions, weight[start : start + CHUNK_ROWS].detach().double())  # Q x chunk
        for of_query, barred in zip(cosines, excluded, strict=True):
            of_query[[row - start for row in barred if start <= row < start + len(of_query)]] = -torch.inf
        indices = torch.arange(start, start + cosines.shape[1], device=best.device).expand_as(cosines)
        ranked = torch.cat([best, cosines], dim=1).sort(dim=1, descending=True, stable=True)
        best = ranked.values[:, :k]
        rows = torch.cat([rows, indices], dim=1).gather(1, ranked.indices[:, :k])
    pairs = [zip(*of_query, strict=True) for of_query in zip(rows.tolist(), best.tolist(), strict=True)]
    return [[(row, cosine) for row, cosine in of_query if cosine > -torch.inf] for of_query in pairs]


def _cosines(directions: Tensor, rows: Tensor) -> Tensor:
    """Cosines (Q, n) of unit vectors (Q, D) and rows (n, D); −∞ for rows of zeros."""
    if not rows.isfinite().all():
        raise ValueError("expected finite embeddings, got an infinity or NaN")
    cosines = (directions @ _directions(rows).t()).round(decimals=DECIMALS).clamp(-1, 1)
    return cosines.masked_fill(~rows.any(dim=1), -torch.inf)


def _directions(rows: Tensor) -> Tensor:
    """The rows (n, D) scaled to length 1; rows of zeros stay zero."""
    return rows / rows.norm(dim=1, keepdim=True).clamp(min=torch.finfo(rows.dtype).tiny)


def _check(weight: Tensor, queries: Tensor, k: int, excluded: Sequence[Collection[int]]) -> None:
    if weight.dim() != 2 or queries.dim() != 2 or weight.shape[1] != queries.shape[1]:
        shapes = f"{tuple(weight.shape)} and {tuple(queries.shape)}"
        raise ValueError(f"expected embeddings (V, D) and queries (Q, D), got {shapes}")
    if k < 1:
        raise ValueError(f"expected 1 neighbor or more, got {k}")
    if len(excluded) != len(queries):
        raise ValueError(f"expected excluded rows for each of {len(queries)} queries, got {len(excluded)}")
    beyond = [row for barred in excluded for row in barred if not 0 <= row < len(weight)]
    if beyond:
        raise ValueError(f"expected excluded rows from 0 to {len(weight) - 1}, got {beyond[0]}")
    if not queries.isfinite().all() or not queries.any(dim=1).all():
        raise ValueError("expected finite queries that are not all zeros")
