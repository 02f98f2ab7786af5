"""Softmax cross-entropy whose gradient into the output embedding is gated.

The value is that of plain cross-entropy and so is the gradient into the features; what a *method* (AGG, AGPS,
freezing) changes is how much of the gradient reaches each row of the output embedding `W`:

    P         = softmax(H Wᵀ + b)                                          (N, V)
    dL/dH     = (P − Q) W                                                  never gated
    dL/db     = Σ_i (P − Q)[i]                                             never gated
    dL/dW[k]  = Σ_i G[i, k] (P − Q)[i, k] H[i]
    G[i, k]   = 1                if k = y_i
              = gate_common[k]   if y_i is not rare
              = gate_rare[k]     if y_i is rare

`G` depends on the row only through "is y_i rare" and "is k the target", so it is never written down. On a CPU
(`chunks.py`) the rows are ordered by kind. Over the common rows the gate factors out of the sum,
`gate_common ⊙ Σ_i …`: one pass over (V, D). Over the rare rows, which are few, the entries of `P − Q` themselves are
gated. A target entry of a common row belongs to a common token, whose gate is 1; one of a rare row is put back after
gating. On a GPU (`fused.py`) a kernel gates every entry where it forms it.

The likelihood of a position may carry a weight (FACE), and an unlikelihood penalty may be added to it; the gates then
apply to the gradient of the whole. What each adds to the gradient is in `chunks.py` and `unlikelihood.py`.

Cost: the three products of plain cross-entropy (6·N·V·D operations) and, beyond inputs and gradients, a chunk of logits
or two. The gradients are formed during the forward pass, summed in float32 (float64 for float64 input), and rescaled in
the backward pass; so the logits are computed only once, and what underflows in half precision does so under a scale of
our own, or not at all.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from .checks import check_arguments
from .chunks import Options, Wanted, wants_gradient
from .formed_gradients import scaled_gradients
from .fused import forward_pass
from .gates import Gates
from .unlikelihood import Unlikelihood


class CrossEntropyOutput(NamedTuple):
    """What `gated_cross_entropy` returns; everything in nats, zero at ignored positions."""

    loss: Tensor
    """Scalar, summed over positions; the only field that carries a gradient."""
    nll: Tensor
    """Like `target`: −log P[i, y_i]."""
    terms: Tensor
    """Like `target`: the summands of `loss`: smoothed, weighted, with the penalty. Else equal to `nll`."""
    unlikelihood: Tensor
    """Like `target`: the penalty before its weight; zero without one."""
    prediction: Tensor | None = None
    """Like `target`: the arg-max of P, int64, where it was asked for."""


def gated_cross_entropy(
    features: Tensor,
    weight: Tensor,
    target: Tensor,
    *,
    bias: Tensor | None = None,
    gates: Gates | None = None,
    label_smoothing: float = 0.0,
    position_weight: Tensor | None = None,
    unlikelihood: Unlikelihood | None = None,
    ignore_index: int = -100,
    predict: bool = False,
    chunk_elements: int | None = None,
) -> CrossEntropyOutput:
    """Cross-entropy of `softmax(features weightᵀ + bias)`, gated where it flows into `weight`.

    In value the same as

        logits = features @ weight.T + bias
        loss = F.cross_entropy(logits.flatten(0, -2), target.flatten(), ignore_index=ignore_index, reduction="sum")

    and in gradient the same as `agg_fairseq.functional.naive_gated_cross_entropy`, without ever holding the logits
    of more than one chunk of positions. `backward` may run once: the gradients live in the graph.

    Args:
        features: (..., D) H, floating point.
        weight: (V, D) W, the output embedding.
        target: (...) y, int64 in [0, V), or `ignore_index`.
        bias: (V,) b, added to the logits; its gradient is not gated.
        gates: which rows receive how much; None is plain likelihood.
        label_smoothing: ε in [0, 1). As fairseq does it, ε/(V−1) goes to every token but the target.
        position_weight: like `target`, what the likelihood of each position counts; None is 1. No gradient flows into
            it.
        unlikelihood: a penalty on tokens that should not follow; its positions are those of the flattened `target`.
        ignore_index: target value of the positions that contribute nothing (padding).
        predict: also return the arg-max of P.
        chunk_elements: logits held at a time, at least one row of V; None is 2^23 (32 MiB in float32), and 256 MiB
            of them on a GPU.

    Returns:
        CrossEntropyOutput: the loss, and its summands per position.

    Raises:
        ValueError: a shape, a range or a size does not fit.
        TypeError: `target` is not int64, or `features` not floating point.

    Example:
        >>> H, W = torch.ones(2, 3), torch.zeros(4, 3, requires_grad=True)
        >>> out = gated_cross_entropy(H, W, torch.tensor([1, 3]))
        >>> round(out.loss.item(), 4)  # 2 log 4
        2.7726

    Reference: Yu et al. (2022), "Rare Tokens Degenerate All Tokens", Eqs. 6–10 and 23. Their Eq. 10 adds a second
    term of equal value that only routes gradients; here the value is the likelihood's, once.
    """
    check_arguments("gated_cross_entropy", features, weight, target, label_smoothing, ignore_index)
    _check(weight, target, bias, gates, position_weight)
    size = target.shape
    options = Options(
        gates=gates,
        label_smoothing=label_smoothing,
        position_weight=None if position_weight is None else position_weight.detach().reshape(-1),
        unlikelihood=unlikelihood,
        ignore_index=ignore_index,
        chunk_elements=chunk_elements,
        predict=predict,
    )
    wanted = Wanted(*map(wants_gradient, (features, weight, bias)))
    loss, *outputs = _GatedCrossEntropy.apply(
        features.reshape(-1, features.size(-1)), weight, bias, target.reshape(-1), options, wanted
    )
    return CrossEntropyOutput(loss, *(None if output is None else output.view(size) for output in outputs))


class _GatedCrossEntropy(torch.autograd.Function):
    """Forms the gradients in the forward pass and scales them in the backward pass (Eq. 23)."""

    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor,
        options: Options,
        wanted: Wanted,
    ) -> tuple[Tensor | None, ...]:
        """The loss of H (N, D), W (V, D), b (V,) or None and y (N,): a scalar, then `chunks.Outputs`."""
        work = forward_pass(features, options).start(features, weight, bias, target, options, wanted)
        work.run()
        ctx.gradients = work.gradients()
        ctx.mark_non_differentiable(*(output for output in work.outputs if output is not None))
        return work.outputs.terms.sum(), *work.outputs

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_loss: Tensor, *unused: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of H (N, D), W (V, D) and b (V,) times `grad_loss`, a scalar: 1, or a loss scale.

        Raises:
            RuntimeError: a second call; the first has used the gradients up.
        """
        return (*scaled_gradients(ctx, grad_loss, "gated_cross_entropy"), None, None, None)


def _check(
    weight: Tensor, target: Tensor, bias: Tensor | None, gates: Gates | None, position_weight: Tensor | None
) -> None:
    if position_weight is not None and position_weight.shape != target.shape:
        raise ValueError(
            f"gated_cross_entropy: expected position_weight of shape {tuple(target.shape)}, "
            f"got {tuple(position_weight.shape)}"
        )
    vectors = {"bias": bias}
    if gates is not None:
        vectors |= {f"gates.{name}": vector for name, vector in gates.vectors().items()}
    for name, vector in vectors.items():
        if vector is not None and vector.shape != weight.shape[:1]:
            raise ValueError(
                f"gated_cross_entropy: expected {name} of shape ({weight.size(0)},), got {tuple(vector.shape)}"
            )
