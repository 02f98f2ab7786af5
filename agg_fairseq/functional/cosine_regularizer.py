"""Cosine regularization: a penalty on the mean cosine between rows of an embedding (Gao et al.
2019, Eqs. 6 and 22)."""

import torch
from torch import Tensor

from .early_gradients import working_dtype


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
    # a sum of V directions may overflow half precision
    with torch.autocast(weight.device.type, enabled=False):
        w = weight.to(working_dtype(weight))
        norm = w.norm(dim=1)  # V
        excluded = norm == 0
        if ignore_index is not None:
            excluded[ignore_index].fill_(True)
        count = (~excluded).sum().clamp(min=1)  # rows that have a direction: V of the formula
        direction_sum = norm.masked_fill(excluded, torch.inf).reciprocal() @ w  # D
        return (direction_sum.square().sum() - count) / count**2
