"""Cosine regularization: a penalty on the mean cosine between rows of an embedding (Gao et al.
2019, Eqs. 6 and 22)."""

from typing import Any

import torch
from torch import Tensor

from .early_gradients import refuse_second_derivatives, working_dtype

BLOCK_ELEMENTS = 2**24
"""Numbers of W that are held in float32 at a time: 64 MiB."""


def cosine_regularizer(weight: Tensor, *, ignore_index: int | None = None) -> Tensor:
    """`R(W) = (‖Σ_k ŵ_k‖² − V) / V²` in [−1, 1], the mean cosine over all pairs of different rows.

    Computed in float32 whatever the dtype (float64 stays), from `Σ_k ŵ_k` as a product of the
    inverse norms and W.

    Args:
        weight: (V, D) embeddings, floating point.
        ignore_index: a row that is not a token (padding), excluded, also from V: fairseq
            initializes it to zero, and the gradient of a direction grows without bound as its row
            goes to zero. Rows of zeros are always excluded.

    Examples:
        >>> cosine_regularizer(torch.tensor([[1.0, 0.0], [0.0, 3.0]]))
        tensor(0.)
    """
    with torch.autocast(weight.device.type, enabled=False):
        return _CosineRegularizer.apply(weight, ignore_index)


class _CosineRegularizer(torch.autograd.Function):
    """R(W), and `dR/dw_k = 2/V² (s − ŵ_k (ŵ_k·s)) / ‖w_k‖` with `s = Σ_k ŵ_k`, in blocks of rows."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, ignore_index: int | None) -> Tensor:
        dtype = working_dtype(weight)  # a sum of V directions may overflow half precision
        norm = torch.linalg.vector_norm(weight, dim=1, dtype=dtype)  # V
        excluded = norm == 0
        if ignore_index is not None:
            excluded[ignore_index].fill_(True)
        count = (~excluded).sum().clamp(min=1)  # rows that have a direction: V of the formula
        inverse = norm.masked_fill(excluded, torch.inf).reciprocal()  # V
        direction_sum = torch.zeros_like(weight[0], dtype=dtype)  # D, s
        for rows in _blocks(weight):
            direction_sum += inverse[rows] @ weight[rows].to(dtype)
        ctx.save_for_backward(weight, inverse, direction_sum, count)
        return (direction_sum.square().sum() - count) / count**2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        refuse_second_derivatives()
        weight, inverse, direction_sum, count = ctx.saved_tensors
        gradient = torch.empty_like(weight)
        for rows in _blocks(weight):
            w, inverse_norm = weight[rows].to(inverse.dtype), inverse[rows, None]
            along = inverse_norm.pow(3) * (w @ direction_sum)[:, None]
            gradient[rows] = 2 * grad / count**2 * (inverse_norm * direction_sum - along * w)
        return gradient, None


def _blocks(weight: Tensor) -> list[slice]:
    """Slices of the rows of W (V, D) with at most `BLOCK_ELEMENTS` numbers each."""
    rows = max(1, BLOCK_ELEMENTS // weight.size(1))
    return [slice(start, start + rows) for start in range(0, len(weight), rows)]
