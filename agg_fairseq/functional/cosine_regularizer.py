"""Cosine regularization: a penalty on the mean cosine between rows of an embedding (Gao et al.
2019, Eqs. 6 and 22)."""

from typing import Any

import torch
from torch import Tensor

from .chunks import working_dtype
from .gated_linear import refuse_second_derivatives

BLOCK_ELEMENTS, GPU_BLOCK_ELEMENTS = 2**18, 2**24
"""Numbers that are held in float32 at a time: as many as stay in the cache of a CPU; 64 MiB."""


def cosine_regularizer(weight: Tensor, *, padding_row: int | None = None) -> Tensor:
    """`R(W) = (‖Σ_k ŵ_k‖² − V) / V²` in [−1, 1], the mean cosine over all pairs of different rows.

    Computed in float32 whatever the dtype (float64 stays).

    Args:
        weight: (V, D) embeddings, floating point.
        padding_row: a row that is not a token (padding), excluded, also from V. So are rows of
            zeros, near which the gradient of a direction grows without bound.

    Examples:
        >>> cosine_regularizer(torch.tensor([[1.0, 0.0], [0.0, 3.0]]))
        tensor(0.)
    """
    with torch.autocast(weight.device.type, enabled=False):
        return _CosineRegularizer.apply(weight, padding_row)


class _CosineRegularizer(torch.autograd.Function):
    """R(W), and `dR/dw_k = 2/V² (s − ŵ_k (ŵ_k·s)) / ‖w_k‖` with `s = Σ_k ŵ_k`."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, padding_row: int | None) -> Tensor:
        dtype = working_dtype(weight)  # a sum of V directions may overflow half precision
        inverse = weight.new_empty(len(weight), dtype=dtype)  # V
        direction_sum = weight.new_zeros(weight.size(1), dtype=dtype)  # D, s
        for block in _blocks(weight):
            rows = weight[block].to(dtype)
            norm = torch.linalg.vector_norm(rows, dim=1)
            inverse[block] = norm.masked_fill_(norm == 0, torch.inf).reciprocal_()
            direction_sum += inverse[block] @ rows
        if padding_row is not None:
            direction_sum -= inverse[padding_row] * weight[padding_row]
            inverse[padding_row].zero_()
        count = inverse.count_nonzero()  # rows that have a direction: V of the formula
        pairs = count.clamp(min=1) ** 2
        ctx.save_for_backward(weight, inverse, direction_sum, pairs)
        return (direction_sum.square().sum() - count) / pairs

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        refuse_second_derivatives()
        weight, inverse, direction_sum, pairs = ctx.saved_tensors
        scale = 2 * grad / pairs
        across = inverse * scale  # V
        gradient = torch.empty_like(weight)
        for block in _blocks(weight):
            rows = weight[block].to(inverse.dtype)
            along = (rows @ direction_sum).mul_(-scale)
            for _ in range(3):  # one after the other, since ‖w_k‖⁻³ may overflow
                along.mul_(inverse[block])
            into = gradient[block] if weight.dtype == rows.dtype else torch.empty_like(rows)
            torch.mul(rows, along[:, None], out=into).addr_(across[block], direction_sum)
            if into.dtype != weight.dtype:
                gradient[block] = into
        return gradient, None


def _blocks(weight: Tensor) -> list[slice]:
    """The rows of (V, D) that are held in float32 at a time."""
    elements = GPU_BLOCK_ELEMENTS if weight.is_cuda else BLOCK_ELEMENTS
    rows = max(1, elements // weight.size(1))
    return [slice(start, start + rows) for start in range(0, len(weight), rows)]
