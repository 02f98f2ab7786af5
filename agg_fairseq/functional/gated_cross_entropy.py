"""Softmax cross-entropy of a linear layer, whose gradient into the layer is gated."""

import torch.nn.functional as F
from torch import Tensor

from .chunks import chunked, working_dtype
from .gated_linear import gated_linear
from .gates import Gates
from .losses import Likelihood, check_weights

REDUCTIONS = ("mean", "sum", "none")


def gated_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    gates: Gates | None = None,
    reduction: str = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Tensor:
    """The cross-entropy of a linear layer, whose gradient into the layer is gated: torch's
    `F.linear_cross_entropy` with gates.

    Equal in value, and without gates in gradient, to

        F.cross_entropy(F.linear(input, linear_weight, linear_bias), target, …)

    without the logits of more than one chunk of positions at a time (but with reduction "none").

    Args:
        input: (..., D) H, floating point.
        linear_weight: (V, D) W, the output embedding.
        target: (...) y, int64 in [0, V), or `ignore_index`.
        linear_bias: (V,) b, gated like W.
        gates: how much of the gradient each row of W and entry of b receives; None is all of it.
        reduction: "mean" over the targets, "sum", or "none".
        ignore_index: the target at positions that contribute nothing (padding).
        label_smoothing: ε in [0, 1]. As torch does it, each token gets ε/V, and the target the rest.

    Returns:
        A scalar, or the losses (...), in nats, in float32 (float64 for float64 features).

    Raises:
        ValueError, RuntimeError: as `chunked`.

    Examples:
        >>> import torch
        >>> H, W = torch.ones(2, 3), torch.zeros(4, 3, requires_grad=True)
        >>> round(gated_cross_entropy(H, W, torch.tensor([1, 3])).item(), 4)  # log 4
        1.3863

    Reference: Yu et al. (2022), "Rare Tokens Degenerate All Tokens", Eqs. 6–10 and 23. Their Eq. 10
    adds a second term of equal value that only routes gradients; here the value is counted once.
    """
    if reduction not in REDUCTIONS:
        raise ValueError(
            f"expected reduction to be one of {', '.join(REDUCTIONS)}, got {reduction!r}"
        )
    check_weights(label_smoothing)
    if reduction == "none":
        logits = gated_linear(input, linear_weight, linear_bias, target, gates)
        losses = F.cross_entropy(
            logits.reshape(-1, logits.size(-1)).to(working_dtype(input)),
            target.reshape(-1),
            reduction="none",
            ignore_index=ignore_index,
            label_smoothing=label_smoothing,
        )
        return losses.view(target.shape)
    loss, _ = chunked(
        Likelihood(label_smoothing),
        input,
        linear_weight,
        target,
        bias=linear_bias,
        gates=gates,
        ignore_index=ignore_index,
    )
    return loss / (target != ignore_index).sum() if reduction == "mean" else loss
