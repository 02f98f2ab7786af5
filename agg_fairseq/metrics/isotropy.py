"""How evenly the token embeddings W (V, D), V >= 1, point in all directions; in float64."""

import math
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

CHUNK_ROWS = 1024
"""Rows that are converted at a time."""
LONGEST = 8.0
"""Rows up to this length, unless in float64, are multiplied by eigenvectors in float32, which
changes I(W) by less than 1e-6 of it."""


def isotropy(weight: Tensor) -> float:
    """I(W) = min Z(a) / max Z(a), `Z(a) = Σ_k exp(w_k · a)`, over the unit eigenvectors a of WᵀW,
    with the signs that `torch.linalg.eigh` returns, as in the papers' tables.

    Args:
        weight: (V, D) embeddings.

    Returns:
        In [0, 1]; 1 is perfectly isotropic, also if all rows are zero. NaN without rows.

    Reference: Mu and Viswanath (2018); Yu et al. (2022), Eq. 3.
    """
    if not len(weight):
        return math.nan
    vectors = torch.linalg.eigh(_gram(weight))[1]  # D x D, one in each column
    return _min_by_max(_log_z(weight, vectors)[0])


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
    return _Directions(weight, center).mean_cosine()


def mean_cross_cosine(first: Tensor, second: Tensor) -> float:
    """The mean cosine over all pairs of a row of `first` (V1, D) and one of `second` (V2, D); NaN
    if one is all zeros.

    Reference: Yu et al. (2022), Fig. 2 (rare against frequent embeddings).
    """
    one, other = _Directions(first), _Directions(second)
    count = one.count * other.count
    return (one.total @ other.total / count).item() if count else math.nan


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
        weight: (V, D) embeddings. Rows of zeros are points like any others. On a CPU, more than
            1,024 rows that are not in float64 are multiplied in float32, which changes the score by
            less than 1e-6 for D of 64 or more.

    Returns:
        In [0, 1], or NaN if W has a NaN: (k − 1) / (D − 1) if the variance is spread evenly over k
        of the D dimensions, and so at most (V − 2) / (D − 1). 0 if all rows are equal; otherwise 1
        if D = 1.

    Examples:
        >>> isoscore(torch.tensor([[1.0, 0.0, 5.0], [-1.0, 0.0, 5.0], [0.0, 1.0, 5.0], [0.0, -1.0, 5.0]]))
        0.5

    Reference: Rudman et al. (2022), Algorithm 1.
    """
    mean = mean_row(weight)
    is_long = weight.device.type == "cpu" and len(weight) > CHUNK_ROWS  # a GPU may use TF32
    if is_long and weight.dtype != torch.float64:
        with np.errstate(over="ignore", invalid="ignore"):
            # about the rounded mean c: that about μ is less by V (μ − c)(μ − c)ᵀ
            rounding = mean - mean.float()
            scatter = _gram(weight, mean, torch.float32) - len(weight) * rounding.outer(rounding)
        if 1e-30 * len(weight) < scatter.trace() < math.inf:  # squares are in the range of float32
            return _isoscore(scatter)
    return _isoscore(_gram(weight, mean))


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
    return Embeddings(weight, center).geometry()


class Embeddings:
    """What measures of embeddings W (V, D) have in common, computed once.

    Args:
        weight: W.
        center: (D,) c, as of `geometry`.
    """

    def __init__(self, weight: Tensor, center: Tensor | None = None) -> None:
        self.weight, self.mean = weight, mean_row(weight)
        self.center = self.mean if center is None else center.to(self.mean)

    def geometry(self) -> Geometry:
        """All measures of `Geometry`."""
        directions = _Directions(self.weight)
        mean_length = directions.lengths / len(self.weight)
        return Geometry(
            isotropy=_min_by_max(self._log_z[0]),
            isotropy_centered=_min_by_max(self._log_z[1]),
            mean_cosine=directions.mean_cosine(),
            mean_cosine_centered=mean_cosine(self.weight, self.center),
            mean_share=(self.mean.norm() / mean_length).clamp(max=1).item(),
            isoscore=_isoscore(self._scatter),
        )

    def isotropy_both_signs(self) -> float:
        """`isotropy` of W over a and −a of each eigenvector."""
        return _min_by_max(torch.cat(self._log_z[::2]))

    def singular_values(self) -> Tensor:
        """The singular values (D,) of W, largest first, divided by the largest.

        Reference: Yu et al. (2022), Fig. 3c.
        """
        roots = self._spectrum[0].clamp(min=0).sqrt().flip(0)
        return roots / roots[0].clamp(min=torch.finfo(roots.dtype).tiny)

    def principal_projection(self) -> Tensor:
        """W in the coordinates of its first two right singular vectors: (V, 2), not centered, with
        signs such that the means are not negative.

        Reference: Yu et al. (2022), Figs. 1 and 3.
        """
        vectors = self._spectrum[1].flip(1)[:, :2]  # D x 2
        projected = torch.cat([rows @ vectors for rows in row_chunks(self.weight)])
        return projected * torch.where(projected.mean(0) < 0, -1.0, 1.0)

    @cached_property
    def _scatter(self) -> Tensor:
        """(W − μ)ᵀ(W − μ) (D, D)."""
        return _gram(self.weight, self.mean)

    @cached_property
    def _spectrum(self) -> tuple[Tensor, Tensor]:
        """The eigenvalues (D,) and eigenvectors (D, D) of WᵀW."""
        return torch.linalg.eigh(self._scatter_about(torch.zeros_like(self.mean)))

    @cached_property
    def _log_z(self) -> tuple[Tensor, Tensor, Tensor]:
        """log Z (D,) of W along the eigenvectors of WᵀW, of W − c along those of (W − c)ᵀ(W − c),
        and of W against the first."""
        vectors = torch.linalg.eigh(self._scatter_about(self.center))[1]
        log_z, opposite = _log_z(self.weight, torch.cat([self._spectrum[1], vectors], dim=1))
        size = len(vectors)
        return log_z[:size], log_z[size:] - self.center @ vectors, opposite[:size]

    def _scatter_about(self, center: Tensor) -> Tensor:
        """(W − c)ᵀ(W − c) (D, D)."""
        return self._scatter + len(self.weight) * torch.outer(
            self.mean - center, self.mean - center
        )


def row_chunks(
    weight: Tensor, center: Tensor | None = None, dtype: torch.dtype = torch.float64
) -> Iterator[Tensor]:
    """The rows in order, a chunk at a time; minus `center` (D,), if given."""
    for rows in weight.detach().split(CHUNK_ROWS):
        yield rows.to(dtype) if center is None else rows.to(dtype, copy=True).sub_(center.to(dtype))


def _gram(
    weight: Tensor, center: Tensor | None = None, dtype: torch.dtype = torch.float64
) -> Tensor:
    """Σ_k w_k w_kᵀ (D, D) in float64, of the rows minus `center`, a chunk at a time in `dtype`."""
    dimension = weight.size(1)
    gram = torch.zeros(dimension, dimension, dtype=torch.float64, device=weight.device)
    for rows in row_chunks(weight, center, dtype):
        if rows.device.type == "cpu":  # NumPy computes one half of it
            gram += torch.from_numpy(rows.numpy().T @ rows.numpy())
        else:
            gram += rows.t() @ rows
    return gram


def _log_z(weight: Tensor, vectors: Tensor) -> tuple[Tensor, Tensor]:
    """log Z(a) and log Z(−a) of directions a (D, N), one in each column: (N,) each."""
    chunks = weight.detach().split(CHUNK_ROWS)
    longest = torch.linalg.vector_norm(weight.detach(), dim=1).max()
    if weight.dtype == torch.float64 or not longest <= LONGEST:
        chunk_sums = []
        for rows in chunks:
            along = rows.double() @ vectors
            chunk_sums.append(torch.stack([along.logsumexp(0), along.neg_().logsumexp(0)]))
        log_z, opposite = torch.stack(chunk_sums).logsumexp(0)
        return log_z, opposite
    z, opposite = torch.zeros(2, vectors.size(1), dtype=torch.float64, device=weight.device)
    vectors = vectors.float()
    for rows in chunks:
        exponentials = (rows.float() @ vectors).exp_()
        z += exponentials.sum(0)
        opposite += exponentials.reciprocal_().sum(0)
    return z.log(), opposite.log()


def _min_by_max(log_z: Tensor) -> float:
    return (log_z.min() - log_z.max()).exp().item()


def _isoscore(scatter: Tensor) -> float:
    """`isoscore` of rows whose covariance is a multiple of `scatter` (D, D)."""
    variance, dimension = scatter.trace(), len(scatter)
    if variance <= 0:
        return 0.0
    if dimension == 1:
        return 1.0
    used = 1 / (scatter / variance).square().sum()  # tr(C)² / ‖C‖², in [1, D]
    return ((used - 1) / (dimension - 1)).clamp(0, 1).item()


class _Directions:
    """Σ_k ŵ_k (D,) over the rows minus `center` that are not zero, the number of these rows, and the
    sum of their lengths."""

    def __init__(self, weight: Tensor, center: Tensor | None = None) -> None:
        self.total = weight.new_zeros(weight.size(1), dtype=torch.float64)
        self.count, self.lengths = 0, self.total.new_zeros(())
        for rows in row_chunks(weight, center):
            norms = torch.linalg.vector_norm(rows, dim=1)
            is_nonzero = norms != 0  # true of NaN, which is then the result
            self.total += norms.where(is_nonzero, torch.inf).reciprocal() @ rows
            self.count += int(is_nonzero.sum())
            self.lengths += norms.sum()

    def mean_cosine(self) -> float:
        """(‖Σ_k ŵ_k‖² − V) / V², of the V rows that are not zero; NaN without any."""
        if not self.count:
            return math.nan
        return ((self.total.square().sum() - self.count) / self.count**2).item()
