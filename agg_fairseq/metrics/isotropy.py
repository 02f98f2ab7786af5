"""How evenly the token embeddings W (V, D), V >= 1, point in all directions; in float64."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

CHUNK_ROWS = 8192
"""Rows that are converted to float64 at a time."""


def isotropy(weight: Tensor, center: Tensor | None = None, *, both_signs: bool = False) -> float:
    """I(W) = min Z(a) / max Z(a), `Z(a) = Σ_k exp(w_k · a)`, over the unit eigenvectors a of WᵀW.

    Args:
        weight: (V, D) embeddings.
        center: (D,) subtracted from each row, or None.
        both_signs: use a and −a of each eigenvector. Otherwise the value depends on the signs that
            `torch.linalg.eigh` returns, as in the papers' tables.

    Returns:
        In [0, 1]; 1 is perfectly isotropic, also if all rows are zero. NaN without rows.

    Reference: Mu and Viswanath (2018); Yu et al. (2022), Eq. 3.
    """
    directions = torch.linalg.eigh(_gram(weight, center))[1]  # D x D, one in each column
    if both_signs:
        directions = torch.cat([directions, -directions], dim=1)  # D x 2D
    sums = []
    for rows in row_chunks(weight, center):
        sums.append(torch.logsumexp(rows @ directions, dim=0))
    log_z = torch.stack(sums).logsumexp(0)
    return (log_z.min() - log_z.max()).exp().item()


def mean_cosine(weight: Tensor, center: Tensor | None = None) -> float:
    """S(W) = (‖Σ_k ŵ_k‖² − V) / V²: the mean cosine between embeddings, without rows of zeros
    (padding), also in V.

    Args:
        weight: (V, D) embeddings.
        center: (D,) subtracted from each row, or None.

    Returns:
        In [−1, 1]; near 0 when isotropic, near 1 in a narrow cone; NaN if all rows are zero.

    Reference: Gao et al. (2019), Eq. 6; Wang et al. (2020).
    """
    total, count = _sum_of_directions(weight, center)
    return ((total.square().sum() - count) / count**2).item() if count else math.nan


def mean_cosine_between(first: Tensor, second: Tensor) -> float:
    """The mean cosine over all pairs of a row of `first` (V1, D) and one of `second` (V2, D); NaN
    if one is all zeros.

    Reference: Yu et al. (2022), Fig. 2 (rare against frequent embeddings).
    """
    (sum1, count1), (sum2, count2) = _sum_of_directions(first), _sum_of_directions(second)
    return (sum1 @ sum2 / (count1 * count2)).item() if count1 and count2 else math.nan


def mean_inner_product(weight: Tensor) -> float:
    """The mean of w_i · w_j over all pairs i ≠ j, (‖Σ_k w_k‖² − Σ_k ‖w_k‖²) / (V (V − 1)); NaN for
    V < 2.

    Reference: Yu et al. (2021), Fig. 2.
    """
    if len(weight) < 2:
        return math.nan
    total = weight.new_zeros(weight.size(1), dtype=torch.float64)  # D
    squares = weight.new_zeros((), dtype=torch.float64)
    for rows in row_chunks(weight):
        total += rows.sum(0)
        squares += rows.square().sum()
    return ((total.square().sum() - squares) / (len(weight) * (len(weight) - 1))).item()


def mean_row(weight: Tensor) -> Tensor:
    """The mean μ (D,) of the rows of `weight` (V, D), in float64; exact where all are equal."""
    first = weight[0].detach().double()  # differences from it are summed, so that equal ones are 0
    total = torch.zeros_like(first)
    for rows in row_chunks(weight, first):
        total += rows.sum(0)
    return first + total / len(weight)


def isoscore(weight: Tensor) -> float:
    """IsoScore: the share of the D dimensions that the rows use evenly, whatever their mean and
    scale.

    With the variances λ (D,) of the rows along their principal axes, the algorithm has λ̂ = √D λ /
    ‖λ‖ (step 4), δ = ‖λ̂ − 1‖ / √(2 (D − √D)) (step 5), φ = (D − δ² (D − √D))² / D² (step 6) and
    the score (D φ − 1) / (D − 1) (step 7). Since ‖λ̂‖² = D, only the covariance C of the rows is
    needed:

        δ² (D − √D) = D − √D Σλ / ‖λ‖,   D φ = (Σλ)² / ‖λ‖² = tr(C)² / ‖C‖²

    Args:
        weight: (V, D) embeddings. Rows of zeros are points like any others.

    Returns:
        In [0, 1], or NaN if W has a NaN: (k − 1) / (D − 1) if the variance is spread evenly over k
        of the D dimensions, and so at most (V − 2) / (D − 1). 0 if all rows are equal; otherwise 1
        if D = 1.

    Examples:
        >>> isoscore(torch.tensor([[1.0, 0.0, 5.0], [-1.0, 0.0, 5.0], [0.0, 1.0, 5.0], [0.0, -1.0, 5.0]]))
        0.5

    Reference: Rudman et al. (2022), Algorithm 1.
    """
    scatter = _gram(weight, mean_row(weight))  # a multiple of C
    variance, dimension = scatter.trace(), len(scatter)
    if variance <= 0:
        return 0.0
    if dimension == 1:
        return 1.0
    used = 1 / (scatter / variance).square().sum()  # tr(C)² / ‖C‖², in [1, D]
    return ((used - 1) / (dimension - 1)).clamp(0, 1).item()


class Geometry(NamedTuple):
    """Measures of embeddings W with mean row μ; NaN where a measure is not defined."""

    isotropy: float  # I(W), in [0, 1]
    isotropy_centered: float  # I(W − μ), in [0, 1]
    mean_cosine: float  # S(W), in [−1, 1]; not defined if all rows are zero
    mean_cosine_centered: float  # S(W − μ), in [−1, 1]; not defined if all rows are equal to μ
    mean_share: float  # ‖μ‖ / mean_k ‖w_k‖, in [0, 1]; not defined if all rows are zero
    isoscore: float  # in [0, 1]; the same for W and W − μ


def geometry(weight: Tensor, *, center: Tensor | None = None) -> Geometry:
    """All measures of `Geometry`.

    Args:
        weight: (V, D) embeddings.
        center: (D,) subtracted by the centered measures, such as the mean row of a matrix of which
            these rows are a group; None: the mean row of `weight`.
    """
    mean = mean_row(weight)
    center = mean if center is None else center.to(mean)
    norms = 0.0
    for rows in row_chunks(weight):
        norms += rows.norm(dim=1).sum()
    return Geometry(
        isotropy=isotropy(weight),
        isotropy_centered=isotropy(weight, center),
        mean_cosine=mean_cosine(weight),
        mean_cosine_centered=mean_cosine(weight, center),
        mean_share=(mean.norm() / (norms / len(weight))).clamp(max=1).item(),
        isoscore=isoscore(weight),
    )


def singular_values(weight: Tensor) -> Tensor:
    """The singular values (D,) of `weight` (V, D), largest first, divided by the largest.

    Reference: Yu et al. (2022), Fig. 3c.
    """
    values = torch.linalg.eigvalsh(_gram(weight)).clamp(min=0).sqrt().flip(0)  # D
    return values / values[0].clamp(min=torch.finfo(values.dtype).tiny)


def principal_projection(weight: Tensor) -> Tensor:
    """`weight` (V, D) in the coordinates of its first two right singular vectors: (V, 2), not
    centered, with signs such that the means are not negative.

    Reference: Yu et al. (2022), Figs. 1 and 3.
    """
    vectors = torch.linalg.eigh(_gram(weight))[1].flip(1)[:, :2]  # D x 2
    chunks = []
    for rows in row_chunks(weight):
        chunks.append(rows @ vectors)
    projected = torch.cat(chunks)
    return projected * torch.where(projected.mean(0) < 0, -1.0, 1.0)


def row_chunks(weight: Tensor, center: Tensor | None = None) -> Iterator[Tensor]:
    """The rows in order, in float64, at most 8,192 at a time; minus `center` (D,), if given."""
    for rows in weight.detach().split(CHUNK_ROWS):
        yield rows.double() if center is None else rows.double() - center


def _gram(weight: Tensor, center: Tensor | None = None) -> Tensor:
    """Σ_k w_k w_kᵀ (D, D), of the rows minus `center`."""
    dimension = weight.size(1)
    gram = torch.zeros(dimension, dimension, dtype=torch.float64, device=weight.device)
    for rows in row_chunks(weight, center):
        gram += rows.t() @ rows
    return gram


def _sum_of_directions(weight: Tensor, center: Tensor | None = None) -> tuple[Tensor, int]:
    """Σ_k ŵ_k (D,) over the rows minus `center` that are not zero, and the number of these rows."""
    total, count = torch.zeros(weight.size(1), dtype=torch.float64, device=weight.device), 0
    for rows in row_chunks(weight, center):
        norms = rows.norm(dim=1, keepdim=True)
        is_nonzero = norms.squeeze(1) != 0  # true of NaN, which is then the result
        total += (rows[is_nonzero] / norms[is_nonzero]).sum(0)
        count += int(is_nonzero.sum())
    return total, count
