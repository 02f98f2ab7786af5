"""A penalty on uneven use of the dimensions: 1 − IsoScore of an embedding, with its gradient in closed form."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def isoscore_penalty(weight: Tensor, *, ignore_index: int | None = None) -> Tensor:
    """1 − IsoScore of the rows: 0 if their variance is spread evenly over all D dimensions, 1 if it lies on a line.

    With X the rows minus their mean, C = XᵀX and P = C / tr(C), whose trace is 1:

        value = 1 − (1/s − 1) / (D − 1),   s = ‖P‖² = Σ_ij P_ij²   in [1/D, 1]

    as `agg_fairseq.metrics.isoscore`. From `ds = 4 ⟨X P − s X, dX⟩ / tr(C)` follows

        d value / dX = X M,   M = 4 (P − s I) / ((D − 1) s² tr(C))

    The rows of X M have the mean 0, as those of X do, so that this is also the gradient with respect to W. A step
    against it shrinks the directions whose share of the variance is larger than s, and stretches the others. Adding the
    same vector to all rows, or multiplying W by a number, changes nothing.

    Cost: V·D² multiplications for C and as many for the gradient. Memory for one copy of W beyond the gradient; in half
    precision, for three in float32. Computed in float32 whatever the dtype (float64 stays).

    Args:
        weight: (V, D) embeddings, floating point, D at least 2.
        ignore_index: a row that is not a token (padding), excluded.

    Returns:
        Scalar in [0, 1], float32 (float64 for float64 input); 1, without a gradient, if all rows are equal.

    Raises:
        ValueError: `weight` is not a matrix with at least 2 columns.

    Reference: Rudman et al. (2022), Algorithm 1, for IsoScore. Rudman & Eickhoff (2024), "Stable anisotropic
    regularization", add a variant of it, of hidden states, to the loss with either sign.
    """
    if weight.dim() != 2 or weight.size(1) < 2:
        raise ValueError(f"isoscore_penalty: expected weight of shape (V, D) with D >= 2, got {tuple(weight.shape)}")
    return _IsoScorePenalty.apply(weight, ignore_index)


class _IsoScorePenalty(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, ignore_index: int | None) -> Tensor:
        """The value for W (V, D); keeps the mean row and M."""
        w = weight if weight.dtype == torch.float64 else weight.float()
        mean = w.sum(0) if ignore_index is None else w.sum(0) - w[ignore_index]
        mean /= max(len(w) - (ignore_index is not None), 1)
        x = _centered(w, mean, ignore_index)
        with torch.autocast(weight.device.type, enabled=False):
            covariance = x.t() @ x  # D x D, C
        trace, dimension = covariance.trace(), w.size(1)
        # All rows are equal if they differ from their mean by rounding errors only; then P = 0 and M = 0.
        equal = trace <= len(w) * (8 * torch.finfo(w.dtype).eps * mean.norm()) ** 2
        trace = trace.masked_fill(equal, torch.inf)
        p = covariance / trace
        s = p.square().sum().masked_fill(equal, 1.0)
        ctx.matrix = 4 * (p - s * torch.eye(dimension, dtype=p.dtype, device=p.device))  # M
        ctx.matrix /= (dimension - 1) * s**2 * trace
        ctx.save_for_backward(weight, mean)
        ctx.ignore_index = ignore_index
        return (1 - (1 / s - 1) / (dimension - 1)).clamp(0, 1)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        """X M times `grad`, a scalar."""
        weight, mean = ctx.saved_tensors
        w = weight if weight.dtype == torch.float64 else weight.float()
        with torch.autocast(weight.device.type, enabled=False):
            gradient = _centered(w, mean, ctx.ignore_index) @ (grad * ctx.matrix)
        return gradient.to(weight.dtype), None


def _centered(w: Tensor, mean: Tensor, ignore_index: int | None) -> Tensor:
    """The rows of W (V, D) minus their mean (D,); the ignored row is 0."""
    x = w - mean
    if ignore_index is not None:
        x[ignore_index].zero_()
    return x
