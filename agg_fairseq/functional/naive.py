"""The gated loss as the paper writes it, in plain autograd: for reading, and for testing the fast one against."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .gated_cross_entropy import Gates


def gate_gradient(value: Tensor, gate: Tensor) -> Tensor:
    """Eq. 6: equal to `value`, while only `gate` times the gradient flows back into it.

    Args:
        value: any shape.
        gate: broadcastable to `value`, in [0, 1].

    Returns:
        Tensor of the broadcast shape.
    """
    return gate * value + (1 - gate) * value.detach()


def naive_gated_cross_entropy(
    features: Tensor,
    weight: Tensor,
    target: Tensor,
    *,
    bias: Tensor | None = None,
    gates: Gates | None = None,
    label_smoothing: float = 0.0,
    ignore_index: int = -100,
) -> Tensor:
    """The loss of `gated_cross_entropy` by the three logits of Eqs. 9–10. Holds several (N, V) tensors.

    Args: as those of `gated_cross_entropy`.

    Returns:
        Scalar in nats: the value of the likelihood, with the gradients of the paper's sum. The paper's own value
        is twice that, since its second term repeats the first; the repetition is subtracted without a gradient.
    """
    features, target = features.reshape(-1, features.size(-1)), target.reshape(-1)
    kept = target != ignore_index
    features, target = features[kept], target[kept]
    offset = 0 if bias is None else bias

    def loss(logits: Tensor) -> Tensor:
        return _smoothed_cross_entropy(logits, target, label_smoothing)

    gate = _gate_matrix(gates, target, weight)  # N x V: G of the paper, g1 or g2 by row, 1 at the target
    z0 = features @ weight.detach().t() + offset
    frozen = features.detach() @ weight.detach().t()
    z12 = gate * (features.detach() @ weight.t()) + (1 - gate) * frozen
    z12 = z12 + (0 if bias is None else bias.detach())
    embedding_term = loss(z12)
    return (loss(z0) + embedding_term - embedding_term.detach()).sum()


def _gate_matrix(gates: Gates | None, target: Tensor, weight: Tensor) -> Tensor:
    matrix = torch.ones(len(target), weight.size(0), dtype=weight.dtype, device=weight.device)
    if gates is None:
        return matrix
    target_is_rare = gates.rare[target]
    for rows, vector in ((~target_is_rare, gates.gate_common), (target_is_rare, gates.gate_rare)):
        if vector is not None:
            matrix[rows] = torch.where(gates.rare, vector.to(weight.dtype), torch.ones_like(vector, dtype=weight.dtype))
    return matrix.scatter(1, target[:, None], 1.0)


def _smoothed_cross_entropy(logits: Tensor, target: Tensor, label_smoothing: float) -> Tensor:
    log_probs = F.log_softmax(logits, dim=1)
    share = label_smoothing / max(logits.size(1) - 1, 1)
    nll = -log_probs.gather(1, target[:, None]).squeeze(1)
    return (1 - label_smoothing - share) * nll - share * log_probs.sum(1)
