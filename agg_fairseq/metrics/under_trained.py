"""Which tokens a model has hardly learned, from its embeddings alone."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .isotropy import check_embeddings, mean_row, row_chunks


def unused_distance(weight: Tensor, unused: Sequence[int]) -> Tensor:
    """1 − cos(w'_k, mean of w'_u over the unused tokens u ≠ k), where w' is w without its part along the first
    principal direction of all rows.

    The rows of tokens that are never a target are all pushed the same way, away from the features, so that they end up
    side by side. That direction has a part which all rows share, since no constant added to all rows changes a
    probability; the first principal direction stands for it.

    Args:
        weight: (V, D) embeddings that are the output layer too.
        unused: rows that are known to be of unused tokens, one or more.

    Returns:
        (V,) float64 in [0, 2]: the nearer to 0, the more alike to unused tokens. A row is compared with the mean of the
        others; NaN for the only one, and for a row of zeros.

    Reference: Land and Bartolo (2024), Sec. 2.
    """
    w = check_embeddings(weight)
    mean = mean_row(w)
    covariance = sum(rows.t() @ rows for rows in row_chunks(w, mean))
    first = torch.linalg.eigh(covariance)[1][:, -1]  # D, of the largest eigenvalue
    rows = torch.cat([rows - (rows @ first)[:, None] * first for rows in row_chunks(w)])  # V x D
    known = torch.zeros(len(rows), dtype=torch.bool)
    known[list(unused)] = True
    total = rows[known].sum(0)  # D; its direction is that of the mean
    others = torch.where(known[:, None], total - rows, total)  # V x D
    lengths = rows.norm(dim=1) * others.norm(dim=1)
    cosines = (rows * others).sum(1) / lengths
    return (1 - cosines).clamp(0, 2).masked_fill(lengths == 0, torch.nan)
