"""Isotropy: how evenly the token embeddings point in all directions. All measures are computed in float64."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

CHUNK_ROWS = 8192
"""Rows that are converted to float64 at a time: a copy of the whole embedding would be twice the model."""


def isotropy(weight: Tensor, *, both_signs: bool = False) -> float:
    """I(W) = min Z(a) / max Z(a), `Z(a) = Σ_k exp(w_k · a)`, over the unit eigenvectors a of WᵀW.

    Computed in log space.

    Args:
        weight: (V, D) embeddings, V >= 1.
        both_signs: use a and −a of each eigenvector. The sign of an eigenvector is arbitrary, but Z(a) differs from
            Z(−a), so only this value does not depend on the library. Without it the signs are those that
            `torch.linalg.eigh` returns, as in the papers' tables.

    Returns:
        In [0, 1]; 1 is perfectly isotropic.

    Raises:
        ValueError: `weight` is not a matrix, has no rows, or holds a value that is not finite.

    Reference: Mu and Viswanath (2018); Yu et al. (2022), Eq. 3.
    """
    w = check_embeddings(weight)
    directions = eigenvectors(w)[1]  # D x D, one in each column
    if both_signs:
        directions = torch.cat([directions, -directions], dim=1)  # D x 2D
    log_z = torch.stack([torch.logsumexp(rows @ directions, dim=0) for rows in row_chunks(w)]).logsumexp(0)
    return (log_z.min() - log_z.max()).exp().item()


def mean_cosine(weight: Tensor) -> float:
    """S(W) = (‖Σ_k ŵ_k‖² − V) / V²: the mean cosine between embeddings, in O(V·D).

    Rows of zeros (padding) have no direction and are excluded, also from V.

    Args:
        weight: (V, D) embeddings.

    Returns:
        In [−1, 1]; near 0 when isotropic, near 1 in a narrow cone.

    Raises:
        ValueError: as `isotropy`, or all rows are zero.

    Reference: Gao et al. (2019), Eq. 6; Wang et al. (2020).
    """
    total, count = _sum_of_directions(weight)
    return ((total.square().sum() - count) / count**2).item()


def mean_cosine_between(first: Tensor, second: Tensor) -> float:
    """The mean cosine over all pairs of a row of `first` (V1, D) and a row of `second` (V2, D).

    Raises:
        ValueError: as `mean_cosine`.

    Reference: Yu et al. (2022), Fig. 2 (rare against frequent embeddings).
    """
    (one, ones), (other, others) = _sum_of_directions(first), _sum_of_directions(second)
    return (one @ other / (ones * others)).item()


def mean_inner_product(weight: Tensor) -> float:
    """The mean of w_i · w_j over all pairs i ≠ j, (‖Σ_k w_k‖² − Σ_k ‖w_k‖²) / (V (V − 1)), in O(V·D).

    Args:
        weight: (V, D) embeddings, V >= 2.

    Raises:
        ValueError: as `isotropy`, or there is no pair.

    Reference: Yu et al. (2021), Fig. 2.
    """
    w = check_embeddings(weight)
    if len(w) < 2:
        raise ValueError(f"expected two or more embeddings, got {len(w)}")
    total = sum(rows.sum(0) for rows in row_chunks(w))  # D
    squares = sum(rows.square().sum() for rows in row_chunks(w))
    return ((total.square().sum() - squares) / (len(w) * (len(w) - 1))).item()


def singular_values(weight: Tensor) -> Tensor:
    """The singular values of `weight` (V, D), largest first, divided by the largest.

    Raises:
        ValueError: as `isotropy`.

    Reference: Yu et al. (2022), Fig. 3c.
    """
    values = eigenvectors(check_embeddings(weight))[0].clamp(min=0).sqrt().flip(0)  # D
    return values / values[0].clamp(min=torch.finfo(values.dtype).tiny)


def principal_projection(weight: Tensor, dimensions: int = 2) -> Tensor:
    """`weight` (V, D) in the coordinates of its leading right singular vectors: (V, dimensions).

    Not centered, so that a common direction of all embeddings is visible. The sign of each axis is chosen so that the
    mean of the rows is not negative on it.

    Raises:
        ValueError: as `isotropy`.

    Reference: Yu et al. (2022), Figs. 1 and 3.
    """
    w = check_embeddings(weight)
    vectors = eigenvectors(w)[1].flip(1)[:, :dimensions]  # D x dimensions
    projected = torch.cat([rows @ vectors for rows in row_chunks(w)])
    return projected * torch.where(projected.mean(0) < 0, -1.0, 1.0)


def _sum_of_directions(weight: Tensor) -> tuple[Tensor, int]:
    """Σ_k ŵ_k (D,) over the rows that are not zero, and the number of these rows."""
    w = check_embeddings(weight)
    total, count = torch.zeros(w.shape[1], dtype=torch.float64, device=w.device), 0
    for rows in row_chunks(w):
        norms = rows.norm(dim=1, keepdim=True)
        kept = norms.squeeze(1) > 0
        total += (rows[kept] / norms[kept]).sum(0)
        count += int(kept.sum())
    if not count:
        raise ValueError("expected embeddings that are not all zero")
    return total, count


def check_embeddings(weight: Tensor) -> Tensor:
    """The embeddings (V, D), detached, after their checks.

    Raises:
        ValueError: `weight` is not a matrix, has no rows, or holds a value that is not finite.
    """
    if weight.dim() != 2 or len(weight) == 0:
        raise ValueError(f"expected embeddings of shape (V, D) with V >= 1, got {tuple(weight.shape)}")
    w = weight.detach()
    if not all(rows.isfinite().all() for rows in w.split(CHUNK_ROWS)):
        raise ValueError("expected finite embeddings, got an infinity or NaN")
    return w


def row_chunks(w: Tensor) -> Iterator[Tensor]:
    """The rows in order, in float64, at most 8,192 at a time."""
    return (rows.double() for rows in w.split(CHUNK_ROWS))


def eigenvectors(w: Tensor) -> tuple[Tensor, Tensor]:
    """The eigenvalues (D,) of WᵀW, ascending, and its unit eigenvectors (D, D), one in each column, in float64."""
    gram = torch.zeros(w.shape[1], w.shape[1], dtype=torch.float64, device=w.device)  # D x D
    for rows in row_chunks(w):
        gram += rows.t() @ rows
    return torch.linalg.eigh(gram)
