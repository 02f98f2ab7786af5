"""How evenly the token embeddings point in all directions."""

from __future__ import annotations

import torch
from torch import Tensor


def isotropy(weight: Tensor, *, both_signs: bool = False) -> float:
    """I(W) = min Z(a) / max Z(a), `Z(a) = Σ_k exp(w_k · a)`, over the unit eigenvectors a of WᵀW.

    Computed in float64 and log space.

    Args:
        weight: (V, D) embeddings, V >= 1.
        both_signs: take a and −a of each eigenvector. An eigenvector has no sign of its own, but Z(a) is not Z(−a), so
            that this is the number that does not depend on the library; without it the signs are those that
            `torch.linalg.eigh` returns, as in the papers' tables.

    Returns:
        In [0, 1]; 1 is perfectly isotropic.

    Raises:
        ValueError: `weight` is no matrix, has no rows, or holds a value that is not finite.

    Reference: Mu and Viswanath (2018); Yu et al. (2022), Eq. 3.
    """
    w = _embeddings(weight)
    directions = torch.linalg.eigh(w.t() @ w).eigenvectors  # D x D, a column each
    along = w @ directions  # V x D
    log_z = torch.logsumexp(along, dim=0)  # D
    if both_signs:
        log_z = torch.cat([log_z, torch.logsumexp(-along, dim=0)])  # 2D
    return (log_z.min() - log_z.max()).exp().item()


def mean_cosine(weight: Tensor) -> float:
    """S(W) = (‖Σ_k ŵ_k‖² − V) / V²: the mean cosine between embeddings, in O(V·D).

    Rows of zeros (padding) have no direction and are left out, also of V.

    Args:
        weight: (V, D) embeddings.

    Returns:
        In [−1, 1]; near 0 when isotropic, near 1 in a narrow cone.

    Raises:
        ValueError: as `isotropy`, or all rows are zero.

    Reference: Gao et al. (2019), Eq. 6; Wang et al. (2020).
    """
    directions = _directions(weight)
    count = len(directions)
    return ((directions.sum(0).square().sum() - count) / count**2).item()


def mean_cosine_between(first: Tensor, second: Tensor) -> float:
    """The mean cosine over all pairs of a row of `first` (V1, D) and a row of `second` (V2, D).

    Raises:
        ValueError: as `mean_cosine`.

    Reference: Yu et al. (2022), Fig. 2 (rare against frequent embeddings).
    """
    return (_directions(first).mean(0) @ _directions(second).mean(0)).item()


def mean_inner_product(weight: Tensor) -> float:
    """The mean of w_i · w_j over all pairs i ≠ j, (‖Σ_k w_k‖² − Σ_k ‖w_k‖²) / (V (V − 1)), in O(V·D).

    Args:
        weight: (V, D) embeddings, V >= 2.

    Raises:
        ValueError: as `isotropy`, or there is no pair.

    Reference: Yu et al. (2021), Fig. 2.
    """
    w = _embeddings(weight)
    if len(w) < 2:
        raise ValueError(f"expected two or more embeddings, got {len(w)}")
    return ((w.sum(0).square().sum() - w.square().sum()) / (len(w) * (len(w) - 1))).item()


def singular_values(weight: Tensor) -> Tensor:
    """The singular values of `weight` (V, D), largest first, divided by the largest.

    Raises:
        ValueError: as `isotropy`.

    Reference: Yu et al. (2022), Fig. 3c.
    """
    w = _embeddings(weight)
    values = torch.linalg.eigvalsh(w.t() @ w).clamp(min=0).sqrt().flip(0)  # D
    return values / values[0].clamp(min=torch.finfo(values.dtype).tiny)


def principal_projection(weight: Tensor, dimensions: int = 2) -> Tensor:
    """`weight` (V, D) in the coordinates of its leading right singular vectors: (V, dimensions).

    Not centred, so that a common direction of all embeddings shows. Each axis is turned so that the mean of the
    rows is not negative on it.

    Raises:
        ValueError: as `isotropy`.

    Reference: Yu et al. (2022), Figs. 1 and 3.
    """
    w = _embeddings(weight)
    vectors = torch.linalg.eigh(w.t() @ w).eigenvectors.flip(1)[:, :dimensions]  # D x dimensions
    projected = w @ vectors
    return projected * torch.where(projected.mean(0) < 0, -1.0, 1.0)


def _directions(weight: Tensor) -> Tensor:
    w = _embeddings(weight)
    norms = w.norm(dim=1, keepdim=True)
    kept = norms.squeeze(1) > 0
    if not kept.any():
        raise ValueError("expected embeddings that are not all zero")
    return w[kept] / norms[kept]


def _embeddings(weight: Tensor) -> Tensor:
    if weight.dim() != 2 or len(weight) == 0:
        raise ValueError(f"expected embeddings of shape (V, D) with V >= 1, got {tuple(weight.shape)}")
    w = weight.detach().double()
    if not w.isfinite().all():
        raise ValueError("expected finite embeddings, got an infinity or NaN")
    return w
