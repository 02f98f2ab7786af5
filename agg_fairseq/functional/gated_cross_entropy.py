"""Softmax cross-entropy whose gradient into the output embedding is gated.

The value is that of plain cross-entropy and so is the gradient into the features; what a *method* (AGG, AGPS,
freezing) changes is how much of the gradient reaches each row of the output embedding `W`, and its entry of the bias:

    P         = softmax(H Wᵀ + b)                                          (N, V)
    dL/dH     = (P − Q) W                                                  never gated
    dL/dW[k]  = Σ_i G[i, k] (P − Q)[i, k] H[i]
    dL/db[k]  = Σ_i G[i, k] (P − Q)[i, k]
    G[i, k]   = 1       if k = y_i
              = g1[k]   if y_i is not rare
              = g2[k]   if y_i is rare

The papers' models have no bias. It is gated like the row because a rare token's whole logit has to be held back: with a
bias that is not gated, every position pushes it down for all tokens but its target, and what degenerates is the bias
(docs/which-cure.md).

`G` depends on the position only through "is y_i rare" and "is k the target", so it is never stored as (N, V); how it is
applied instead is told by `kernels/chunked.py` and `kernels/fused.py`.

Models that scale and soft-cap their logits (Granite, Cohere, Gemma 2) have `z = c tanh(z'/c)` with `z' = s (H Wᵀ + b)`
in the place of `H Wᵀ + b`. Since `dz/d(H Wᵀ + b) = s (1 − (z/c)²)` for each entry, `P − Q` above is multiplied by that,
before or after the gates. The scale costs nothing, as `z' = (s H) Wᵀ + s b`; the cap costs one pass over the logits and
one over `P − Q`.

The likelihood of a position may have a weight (FACE), and an unlikelihood penalty and a z-loss may be added to it; the
gates then apply to the gradient of the sum. `ChunkedLoss` lists what each term adds to the gradient.

Cost: the three products of plain cross-entropy (6·N·V·D operations) and, beyond inputs and gradients, a chunk of logits
or two, each of 2^23 elements on a CPU and 256 MiB on a GPU. The gradients are formed during the forward pass, summed in
float32 (float64 for float64 input), and rescaled in the backward pass. So the logits are computed only once, and half
precision does not make gradients underflow before the loss scale is applied.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from . import kernels
from .checks import check_arguments, check_positions_and_tokens, check_weight
from .gates import Gates
from .loss_core import Options, Wanted, scaled_gradients, wants_gradient
from .unlikelihood import Unlikelihood


class CrossEntropyOutput(NamedTuple):
    """The result of `gated_cross_entropy`; in nats where not said otherwise, zero at ignored positions."""

    loss: Tensor  # scalar, summed over positions; the only field that carries a gradient
    # The others are shaped like `target`.
    nll: Tensor  # −log P[i, y_i]
    losses: Tensor  # the summands of `loss`, that is `nll` with label smoothing, weight and penalties, if any
    unlikelihood: Tensor  # the penalty before its weight; zero without one
    z_loss: Tensor  # (log Σ_k exp z[k])² before its weight, in nats²; zero without a z-loss
    adversarial: Tensor  # −log P' of the perturbed logits, which `losses` has in place of `nll`; zero without ε
    prediction: Tensor | None = None  # the arg-max of P, int64; None without `predict`


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
    z_loss: float = 0.0,
    adversarial: float = 0.0,
    scale: float = 1.0,
    softcap: float | None = None,
    ignore_index: int = -100,
    predict: bool = False,
) -> CrossEntropyOutput:
    """Cross-entropy of `softmax(features weightᵀ + bias)` whose gradient into `weight` is gated.

    Equal in value to

        logits = scale * (features @ weight.T + bias)
        logits = softcap * torch.tanh(logits / softcap)  # if given
        loss = F.cross_entropy(logits.flatten(0, -2), target.flatten(), ignore_index=ignore_index, reduction="sum")

    and in gradient to `agg_fairseq.functional.naive_gated_cross_entropy`, without ever holding the logits of more than
    one chunk of positions. `backward` may run once, since the graph holds the gradients themselves.

    Args:
        features: (..., D) H, floating point.
        weight: (V, D) W, the output embedding.
        target: (...) y, int64 in [0, V), or `ignore_index`.
        bias: (V,) b, added to the logits; its gradient is gated like that of W.
        gates: how much of the gradient each row of W and entry of b receives; None is plain likelihood.
        label_smoothing: ε in [0, 1). As fairseq does it, ε/(V−1) goes to every token but the target.
        position_weight: like `target`, the weight of the likelihood of each position, for example
            `face_weights(frequency)[target]`; None is 1. It receives no gradient.
        unlikelihood: a penalty on tokens that should not follow; its positions are those of the flattened `target`.
        z_loss: γ >= 0, adds `γ log²Z` at each position, with log Z the logsumexp of its logits (Chowdhery et al. 2022,
            "PaLM", Sec. 5: γ = 1e-4). It is not multiplied by `position_weight`.
        adversarial: ε >= 0 of adversarial training (Wang, Gong & Liu 2019): the logit of the target is lowered by
            `ε ‖w_y‖ ‖h‖` where `w_y·h > 0`, which is what a perturbation of w_y of length `ε ‖w_y‖` can do at most. All
            terms are those of the lowered logits. The perturbation itself carries no gradient.
        scale: s, by which the logits are multiplied, not 0.
        softcap: c > 0, the bound of the logits, as in Gemma 2; None is none. It cannot be combined with `adversarial`.
        ignore_index: target value of the positions that contribute nothing (padding).
        predict: also return the arg-max of P, of the logits as they are without `adversarial`.

    Raises:
        ValueError: a shape, a range or a size does not fit.
        TypeError: `target` is not int64, or `features` not floating point.

    Examples:
        >>> H, W = torch.ones(2, 3), torch.zeros(4, 3, requires_grad=True)
        >>> out = gated_cross_entropy(H, W, torch.tensor([1, 3]))
        >>> round(out.loss.item(), 4)  # 2 log 4
        2.7726

    Reference: Yu et al. (2022), "Rare Tokens Degenerate All Tokens", Eqs. 6–10 and 23. Their Eq. 10 adds a second
    term of equal value that only routes gradients; here the value is the likelihood's, once.
    """
    check_arguments("gated_cross_entropy", features, weight, target, label_smoothing, ignore_index)
    check_positions_and_tokens("gated_cross_entropy", target, weight.size(0), position_weight, bias, gates)
    for name, value in (("z_loss", z_loss), ("adversarial", adversarial)):
        check_weight(name, value)
    if not math.isfinite(scale) or scale == 0:
        raise ValueError(f"expected a finite scale that is not 0, got {scale}")
    if softcap is not None and not 0 < softcap < math.inf:
        raise ValueError(f"expected softcap above 0, got {softcap}")
    if softcap is not None and adversarial:
        raise ValueError(f"found softcap {softcap} and adversarial {adversarial}; expected at most one of them")
    if scale != 1:  # s (H Wᵀ + b) = (s H) Wᵀ + s b
        features, bias = features * scale, None if bias is None else bias * scale
    options = Options(
        gates=gates,
        label_smoothing=label_smoothing,
        position_weight=None if position_weight is None else position_weight.detach().reshape(-1),
        unlikelihood=unlikelihood,
        ignore_index=ignore_index,
        predict=predict,
        z_loss=z_loss,
        adversarial=adversarial,
        softcap=softcap,
    )
    wanted = Wanted(*map(wants_gradient, (features, weight, bias)))
    inputs = (features.reshape(-1, features.size(-1)), weight, bias, target.reshape(-1), options, wanted)
    loss, *outputs = _GatedCrossEntropy.apply(kernels.select(features, options), *inputs)
    return CrossEntropyOutput(loss, *(None if output is None else output.view(target.shape) for output in outputs))


class _GatedCrossEntropy(torch.autograd.Function):
    """Forms the gradients in the forward pass and scales them in the backward pass (Eq. 23)."""

    @staticmethod
    def forward(ctx: Any, implementation: type[kernels.ChunkedLoss], *inputs: Any) -> tuple[Tensor | None, ...]:
        """The loss of H (N, D), W (V, D), b (V,) or None and y (N,): a scalar, then the fields of `Outputs`."""
        work = implementation(*inputs)
        work.run()
        ctx.gradients = work.gradients()
        ctx.mark_non_differentiable(*(output for output in work.outputs if output is not None))
        return work.outputs.losses.sum(), *work.outputs

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_loss: Tensor, *unused: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of H (N, D), W (V, D) and b (V,) times `grad_loss`, 1 or a loss scale; may run once."""
        return (None, *scaled_gradients(ctx, grad_loss, "gated_cross_entropy"), None, None, None)


def face_weights(frequency: Tensor) -> Tensor:
    """The weight of each token in FACE, `1 − f[k] / max f`, scaled to a mean of 1: (V,) float32.

    f (V,), not negative, is how often each token was output (OPR) or is in the training set. All weights are 1 where
    nothing was output yet, or all tokens equally often. This is the variant with pre-weight.

    Reference: Jiang et al. (2019), "Improving Neural Response Diversity with Frequency-Aware Cross-Entropy Loss".
    """
    f = frequency.double()
    weight = 1 - f / f.max().clamp(min=1)
    total = weight.sum()
    return torch.where(total > 0, weight * (len(f) / total), torch.ones_like(weight)).float()
