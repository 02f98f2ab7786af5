"""What the measures of embeddings begin with: they are looked at, and taken in float64 a few rows at a time."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

CHUNK_ROWS = 8192


def check_embeddings(weight: Tensor) -> Tensor:
    """The embeddings (V, D), without their history.

    Raises:
        ValueError: `weight` is no matrix, has no rows, or holds a value that is not finite.
    """
    if weight.dim() != 2 or len(weight) == 0:
        raise ValueError(f"expected embeddings of shape (V, D) with V >= 1, got {tuple(weight.shape)}")
    w = weight.detach()
    if not all(rows.isfinite().all() for rows in w.split(CHUNK_ROWS)):
        raise ValueError("expected finite embeddings, got an infinity or NaN")
    return w


def row_chunks(w: Tensor) -> Iterator[Tensor]:
    """The rows in order, at most 8,192 at a time, in float64: a whole copy of that would be twice the model."""
    return (rows.double() for rows in w.split(CHUNK_ROWS))


def eigenvectors(w: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues (D,), ascending, and unit eigenvectors (D, D), a column each, of WᵀW, in float64."""
    gram = torch.zeros(w.shape[1], w.shape[1], dtype=torch.float64, device=w.device)  # D x D
    for rows in row_chunks(w):
        gram += rows.t() @ rows
    return torch.linalg.eigh(gram)
