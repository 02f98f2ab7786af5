"""Cosine regularization: a penalty on the mean cosine between rows of an embedding (Gao et al. 2019, Eqs. 6 and 22)."""

from typing import Any

import torch
from torch import Tensor

from .loss_core import working_dtype


def cosine_regularizer(weight: Tensor, *, ignore_index: int | None = None) -> Tensor:
    """`R(W) = (‖Σ_k ŵ_k‖² − V) / V²` in [−1, 1], the mean cosine over all pairs of different rows.

    With `s = Σ_k ŵ_k`, the gradient is `dR/dw_k = 2 (s − (ŵ_k·s) ŵ_k) / (V² ‖w_k‖)`. Both cost three passes over W and,
    beyond the gradient, memory for vectors only. Computed in float32 whatever the dtype (float64 stays).

    Args:
        weight: (V, D) embeddings, floating point.
        ignore_index: a row that is not a token (padding), excluded, also from V: fairseq initializes it to zero, and
            the gradient of a direction grows without bound as its row goes to zero. Rows of zeros are always excluded.

    Examples:
        >>> cosine_regularizer(torch.tensor([[1.0, 0.0], [0.0, 3.0]]))
        tensor(0.)
    """
    return _CosineRegularizer.apply(weight, ignore_index)


class _CosineRegularizer(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, ignore_index: int | None) -> Tensor:
        """The value for W (V, D); keeps s and the inverse norms."""
        w = weight.to(working_dtype(weight))
        inverse = w.norm(dim=1).reciprocal()  # V
        inverse.masked_fill_(inverse.isinf(), 0.0)
        if ignore_index is not None:
            inverse[ignore_index].zero_()
        count = (inverse > 0).sum().clamp(min=1)  # rows that have a direction: V of the formula
        with torch.autocast(weight.device.type, enabled=False):  # a sum of V directions may overflow half precision
            direction_sum = inverse @ w  # D, s
        ctx.save_for_backward(weight, inverse, direction_sum, count)
        return (direction_sum.square().sum() - count) / count**2

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        """`2 (s − (ŵ_k·s) ŵ_k) / (V² ‖w_k‖)` times `grad`, a scalar."""
        weight, inverse, direction_sum, count = ctx.saved_tensors
        w = weight.to(working_dtype(weight))
        outer = 2 * grad * inverse / count**2  # V
        with torch.autocast(weight.device.type, enabled=False):
            cosine = (w @ direction_sum) * inverse  # V, ŵ_k·s
        gradient = torch.mul(w, (-outer * cosine * inverse)[:, None]).addr_(outer, direction_sum)
        return gradient.to(weight.dtype), None
