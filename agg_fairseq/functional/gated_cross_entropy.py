"""Softmax cross-entropy whose gradient into the output embedding is gated.

The value is that of plain cross-entropy and so is the gradient into the features; what a *method*
(AGG, AGPS, freezing) changes is how much of the gradient reaches each row of the output embedding
`W`, and its entry of the bias:

    P         = softmax(H Wᵀ + b)                                          (N, V)
    dL/dH     = (P − Q) W                                                  never gated
    dL/dW[k]  = Σ_i G[i, k] (P − Q)[i, k] H[i]
    dL/db[k]  = Σ_i G[i, k] (P − Q)[i, k]
    G[i, k]   = 1       if k = y_i
              = g1[k]   if y_i is not rare
              = g2[k]   if y_i is rare

The papers' models have no bias. It is gated like the row because a rare token's whole logit has to
be held back: with a bias that is not gated, every position pushes it down for all tokens but its
target, and what degenerates is the bias (docs/which-cure.md).

Neither the logits nor `G` ever exist for all positions: `G` depends on the position only through
"is y_i rare" and "is k the target". So the positions with a common target come first, in chunks,
and their gate is applied once to the sum; then come the rare ones, whose residuals `P − Q` are
gated one by one, with the target's entry put back.

Cost: the three products of plain cross-entropy (6·N·V·D operations) and, beyond inputs and
gradients, one chunk of logits (a few with a term or a soft cap). The products take the dtype of the
features (under autocast, autocast's) and are summed in float32 (float64 for float64 features); in
between, everything is in float32. In float16, whose smallest number is above the tail of P,
residuals are multiplied by 2^10 before they are rounded. One thing makes the host wait for a GPU:
how many positions are common, rare and ignored.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .early_gradients import chunk_rows, wants_gradient, with_gradients, working_dtype
from .gates import Gates
from .unlikelihood import Candidates, unlikelihood

HALF_SCALE = 2.0**10  # of residuals in float16; this leaves room for gates of up to 60


class CrossEntropyOutput(NamedTuple):
    """The result of `gated_cross_entropy`; in nats, zero at ignored positions."""

    loss: Tensor  # scalar, summed over positions; the only field that carries a gradient
    # The others are shaped like `target`.
    nll: Tensor  # −log P[i, y_i]
    # the summands of `loss`, that is `nll` with label smoothing, weight and terms, if any
    losses: Tensor
    ul_loss: Tensor | None = None  # the unlikelihood before its weight; None without candidates
    # −log P' of the lowered logits, which `losses` has in place of `nll`; None without ε.
    adv_loss: Tensor | None = None
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
    candidates: Candidates | None = None,
    ul_alpha: float = 1.0,
    adv_epsilon: float = 0.0,
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

    and in gradient to `agg_fairseq.functional.naive_gated_cross_entropy`, without ever holding the
    logits of more than one chunk of positions. `backward` may run once, since the graph holds the
    gradients themselves.

    Args:
        features: (..., D) H, floating point.
        weight: (V, D) W, the output embedding.
        target: (...) y, int64 in [0, V), or `ignore_index`.
        bias: (V,) b, added to the logits; its gradient is gated like that of W.
        gates: how much of the gradient each row of W and entry of b receives; None is plain
            likelihood.
        label_smoothing: ε in [0, 1). As fairseq does it, ε/(V−1) goes to every token but the
            target.
        position_weight: like `target`, the weight of the likelihood of each position, for example
            `face_weights(frequency)[target]`; None is 1. It receives no gradient.
        candidates: tokens that should not follow, which adds `−α Σ_c log(1 − P[c])` at each
            position; its positions are those of the flattened `target`. The gates act on the
            gradient of the sum.
        ul_alpha: α >= 0.
        adv_epsilon: ε >= 0 of adversarial training (Wang, Gong & Liu 2019): the logit of the target
            is lowered by `ε ‖w_y‖ ‖h‖` where `w_y·h > 0`, which is what a perturbation of w_y of
            length `ε ‖w_y‖` can do at most. All terms are those of the lowered logits. The
            perturbation itself carries no gradient.
        scale: s, by which the logits are multiplied, not 0.
        softcap: c > 0, the bound of the logits, as in Gemma 2; None is none. It cannot be combined
            with `adv_epsilon`.
        ignore_index: target value of the positions that contribute nothing (padding).
        predict: also return the arg-max of P, of the logits as they are without `adv_epsilon`.

    Raises:
        ValueError: a shape or a number is out of its range, or `features` are not floating point.
        RuntimeError: a target is out of its range; or whatever else PyTorch says of arguments that
            do not fit.

    Examples:
        >>> H, W = torch.ones(2, 3), torch.zeros(4, 3, requires_grad=True)
        >>> out = gated_cross_entropy(H, W, torch.tensor([1, 3]))
        >>> round(out.loss.item(), 4)  # 2 log 4
        2.7726

    Reference: Yu et al. (2022), "Rare Tokens Degenerate All Tokens", Eqs. 6–10 and 23. Their Eq. 10
    adds a second term of equal value that only routes gradients; here the value is the
    likelihood's, once.
    """
    check_arguments(features, target, len(weight), label_smoothing, ignore_index)
    if position_weight is not None and position_weight.shape != target.shape:
        raise ValueError(
            f"expected position_weight {tuple(target.shape)}, got {tuple(position_weight.shape)}"
        )
    check_weights(ul_alpha=ul_alpha, adv_epsilon=adv_epsilon)
    if not math.isfinite(scale) or scale == 0:
        raise ValueError(f"expected a finite scale that is not 0, got {scale}")
    if softcap is not None and (adv_epsilon or not 0 < softcap < math.inf):
        raise ValueError(
            f"expected softcap above 0, without adv_epsilon; got {softcap} and {adv_epsilon}"
        )
    if scale != 1:  # s (H Wᵀ + b) = (s H) Wᵀ + s b
        features, bias = features * scale, None if bias is None else bias * scale
    if weight.size(0) == 1:  # no token but the target
        label_smoothing = 0.0
    residual_of: Residual = partial(likelihood_, label_smoothing=label_smoothing)
    if position_weight is not None or candidates is not None or adv_epsilon or softcap is not None:
        residual_of = partial(
            likelihood_with_terms,
            label_smoothing=label_smoothing,
            position_weight=None
            if position_weight is None
            else position_weight.detach().reshape(-1),
            candidates=candidates,
            ul_alpha=ul_alpha,
            softcap=softcap,
        )
    inputs = (features.reshape(-1, features.size(-1)), weight, bias)
    values, gradients, positions = values_and_gradients(
        *inputs,
        target.reshape(-1),
        residual_of,
        wanted=tuple(map(wants_gradient, inputs)),
        gates=gates,
        adv_epsilon=adv_epsilon,
        ignore_index=ignore_index,
        predict=predict,
    )
    loss = with_gradients(values["losses"].sum(), inputs, gradients, positions)
    fields = (values.get(name) for name in CrossEntropyOutput._fields[1:])
    return CrossEntropyOutput(
        loss, *(None if value is None else value.view(target.shape) for value in fields)
    )


def check_arguments(
    features: Tensor, target: Tensor, vocabulary: int, label_smoothing: float, ignore_index: int
) -> None:
    """What would otherwise give a wrong loss; on a GPU the error of a wrong target comes later,
    without waiting."""
    if not features.is_floating_point() or target.shape != features.shape[:-1]:
        found = f"{features.dtype} {tuple(features.shape)} and {tuple(target.shape)}"
        raise ValueError(
            f"expected floating-point features (..., D) and target of shape (...), got {found}"
        )
    if not 0 <= label_smoothing < 1:
        raise ValueError(f"expected label_smoothing in [0, 1), got {label_smoothing}")
    good = (target == ignore_index) | ((target >= 0) & (target < vocabulary))
    torch._assert_async(
        good.all(), f"expected targets in [0, {vocabulary}) or {ignore_index} (ignored)"
    )


def check_weights(**weights: float) -> None:
    """Raises ValueError for a weight that is negative or not finite."""
    for name, weight in weights.items():
        if not 0 <= weight < math.inf:
            raise ValueError(f"expected {name} of at least 0, got {weight}")


Residual = Callable[[Tensor, Tensor, Tensor, Tensor | None], tuple[dict[str, Tensor], Tensor]]
"""Of the logits of a chunk (C, V), its positions (C,), their targets (C,) and a margin (C,) or
None: the values (C,) by their names in `CrossEntropyOutput`, and dL/dz (C, V), which may take the
memory of the logits."""


@torch.no_grad()
def values_and_gradients(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    residual_of: Residual,
    *,
    wanted: tuple[bool, bool, bool],
    gates: Gates | None = None,
    adv_epsilon: float = 0.0,
    ignore_index: int | None = -100,
    predict: bool = False,
) -> tuple[dict[str, Tensor], list[Tensor | None], Tensor]:
    """The loop over chunks of H (N, D), W (V, D), b (V,) or None and y (N,).

    `wanted`: whose gradients are wanted, of H, W and b. Returns the values (N,) by name, zero at
    ignored positions; the gradients of the sum of the `losses`, in float32 (float64 for float64
    features), None where not wanted; and the number of positions with a target, a scalar. Without
    gates and an `ignore_index`, nothing waits for a GPU.
    """
    dtype, wide = product_dtype(features), working_dtype(features)
    with torch.autocast(features.device.type, enabled=False):
        w, b = weight.to(dtype), None if bias is None else bias.to(wide)
        values: dict[str, Tensor] = {"losses": features.new_zeros(len(target), dtype=wide)}
        values["nll"] = torch.zeros_like(values["losses"])
        if predict:
            values["prediction"] = torch.zeros_like(target)
        grad_features, grad_weight, grad_bias = (
            torch.zeros_like(tensor, dtype=wide) if wants else None
            for tensor, wants in zip((features, weight, bias), wanted, strict=True)
        )

        common, rare = torch.arange(len(target), device=target.device), target.new_empty(0)
        positions = torch.ones_like(common).sum()
        if ignore_index is not None or gates is not None:
            ignored = target == ignore_index
            # 0 common, 1 rare, 2 ignored: sorted by this, and counted: a GPU is waited for
            kind = 2 * ignored.long()
            if gates is not None:
                kind += gates.rare[target.masked_fill(ignored, 0)] & ~ignored
            positions = (kind < 2).sum()
            sizes = torch.stack([(kind == 0).sum(), positions]).tolist()
            common, rare, _ = kind.argsort(stable=True).tensor_split(sizes)
        # C x V
        buffer = w.new_empty(min(chunk_rows(w), max(len(common), len(rare))), len(w), dtype=wide)

        for is_rare, group in enumerate((common, rare)):
            gate = None if gates is None or not is_rare else gates.at_rare_targets(like=buffer)
            for rows in group.split(len(buffer)) if len(group) else ():
                h, y = features[rows].to(dtype), target[rows]  # C x D; C
                logits = product(h, w.t(), out=buffer[: len(rows)])
                margin = squared = None
                if adv_epsilon:
                    # The target's embedding is perturbed by the δ of length ε ‖w_y‖ that lowers its
                    # logit most, so by m = ε ‖w_y‖ ‖h‖, where w_y·h > 0. It is −(m / ‖h‖²) h.
                    squared = h.to(wide).square().sum(1)  # C, ‖h‖²
                    lowers = logits.gather(1, y[:, None]).squeeze(1) > 0
                    margin = adv_epsilon * w[y].to(wide).norm(dim=1) * squared.sqrt() * lowers
                if b is not None:
                    logits.add_(b)
                if predict:
                    values["prediction"][rows] = logits.argmax(1)
                of_chunk, residual = residual_of(logits, rows, y, margin)
                for name, value in of_chunk.items():
                    values.setdefault(name, torch.zeros_like(values["losses"]))[rows] = value
                if not any(wanted):
                    continue
                at_target = residual.gather(1, y[:, None])  # C x 1
                residual, undo = _rounded(residual, dtype)
                if grad_features is not None:
                    grad_features[rows] = product(residual, w).mul_(undo)
                    if margin is not None:  # dz'[y]/dh = w_y + δ, with δ held fixed
                        grad_features[rows] -= (
                            at_target * (margin / squared.clamp(min=1e-30))[:, None] * h
                        )
                if gate is not None:  # on all but the target's entry, which is put back
                    at_target = residual.gather(1, y[:, None])
                    residual.mul_(gate).scatter_(1, y[:, None], at_target)
                if grad_bias is not None:
                    grad_bias += residual.sum(0, dtype=wide) * undo
                if grad_weight is not None:
                    add_product_(grad_weight, residual.t(), h, undo)
            if not is_rare and gates is not None:  # the sum over the common positions
                gate = gates.at_common_targets(like=buffer)
                if gate is not None and grad_weight is not None:
                    grad_weight.mul_(gate[:, None])
                if gate is not None and grad_bias is not None:
                    grad_bias.mul_(gate)
    return values, [grad_features, grad_weight, grad_bias], positions


def likelihood_(
    logits: Tensor, rows: Tensor, target: Tensor, margin: None, *, label_smoothing: float
) -> tuple[dict[str, Tensor], Tensor]:
    """A `Residual`: likelihood, dL/dz = P − Q, in the memory of the logits."""
    vocabulary = logits.size(1)
    # Q at every token but the target, as in fairseq
    share = label_smoothing and label_smoothing / (vocabulary - 1)
    y = target[:, None]
    at_target = logits.gather(1, y).squeeze(1)  # C
    largest = logits.amax(1)  # C
    total = logits.sum(1) if share else None  # C
    probabilities = torch.softmax(logits, 1, out=logits)  # C x V, P
    # The largest probability is exp(max z − logsumexp z), and at least 1/V, so its logarithm is
    # accurate. In −log P[y] = (max z − z[y]) − log max P the logits come first: they cancel exactly
    # where y is the arg-max.
    log_largest = probabilities.amax(1).log()  # C
    nll = losses = (largest - at_target) - log_largest
    if total is not None:
        uniform = vocabulary * (largest - log_largest) - total  # −Σ_k log P[k]
        losses = (1 - label_smoothing - share) * nll + share * uniform
        probabilities.sub_(share)
    residual = probabilities.scatter_add_(
        1, y, logits.new_full(y.shape, share + label_smoothing - 1)
    )
    return {"nll": nll, "losses": losses}, residual


def likelihood_with_terms(
    logits: Tensor,
    rows: Tensor,
    target: Tensor,
    margin: Tensor | None,
    *,
    label_smoothing: float,
    position_weight: Tensor | None,
    candidates: Candidates | None,
    ul_alpha: float,
    softcap: float | None,
) -> tuple[dict[str, Tensor], Tensor]:
    """A `Residual`: everything that can be added to the likelihood, its gradient by autograd."""
    vocabulary, y = logits.size(1), target[:, None]
    share = label_smoothing and label_smoothing / (vocabulary - 1)
    with torch.enable_grad():
        z = leaf = logits.detach().requires_grad_()
        if softcap is not None:
            z = softcap * torch.tanh(z / softcap)
        values = {"nll": F.cross_entropy(z, target, reduction="none")}
        if margin is not None:
            z = z.scatter_add(1, y, -margin[:, None])
        log_probs = F.log_softmax(z, 1)  # C x V
        losses = nll = -log_probs.gather(1, y).squeeze(1)
        if margin is not None:
            values["adv_loss"] = nll
        if label_smoothing:
            losses = (1 - label_smoothing - share) * nll - share * log_probs.sum(1)
        if position_weight is not None:
            losses = losses * position_weight[rows].to(losses.dtype)
        if candidates is not None:
            values["ul_loss"] = unlikelihood(z, log_probs, *candidates.at(rows, target))
            losses = losses + ul_alpha * values["ul_loss"]
        values["losses"] = losses
        (residual,) = torch.autograd.grad(losses.sum(), leaf)
    return {name: value.detach() for name, value in values.items()}, residual


def product_dtype(features: Tensor) -> torch.dtype:
    """The dtype in which a linear layer multiplies the features: theirs, or that of autocast."""
    return torch.mm(features[:0], features[:0].t()).dtype


def _rounded(residual: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor | float]:
    """dL/dz in the dtype of the products, in float16 scaled; and the factor that undoes the
    scale."""
    if dtype != torch.float16:
        return residual.to(dtype), 1.0
    scale = HALF_SCALE / residual.abs().amax().clamp(min=1)  # a scalar, which stays on the device
    return (residual * scale).to(dtype), 1 / scale


def _sums_in_float32(half: Tensor) -> bool:
    """Can torch multiply matrices of half precision into float32? On NVIDIA's GPUs, from 2.10."""
    return half.is_cuda and torch.version.hip is None and torch.__version__ >= (2, 10)


def product(left: Tensor, right: Tensor, out: Tensor | None = None) -> Tensor:
    """`left @ right`, that of half precision in float32: without such a product of torch, both are
    widened."""
    if left.dtype in (torch.float32, torch.float64):
        return torch.mm(left, right, out=out)
    if _sums_in_float32(left):
        return torch.mm(left, right, out_dtype=torch.float32, out=out)
    return torch.mm(left.float(), right.float(), out=out)


def add_product_(total: Tensor, left: Tensor, right: Tensor, alpha: Tensor | float) -> None:
    """`total += alpha · left @ right`, with `total` in float32 or float64."""
    if isinstance(alpha, Tensor):
        total.add_(product(left, right).mul_(alpha))
    elif left.dtype == total.dtype or not _sums_in_float32(left):
        total.addmm_(left.to(total.dtype), right.to(total.dtype))
    else:
        torch.addmm(total, left, right, out_dtype=torch.float32, out=total)


def face_weights(frequency: Tensor) -> Tensor:
    """The weight of each token in FACE, `1 − f[k] / max f`, scaled to a mean of 1: (V,) float32.

    f (V,), not negative, is how often each token was output (OPR) or is in the training set. All
    weights are 1 where nothing was output yet, or all tokens equally often. This is the variant
    with pre-weight.

    Reference: Jiang et al. (2019), "Improving Neural Response Diversity with Frequency-Aware
        Cross-Entropy Loss".
    """
    f = frequency.double()
    weight = 1 - f / f.max().clamp(min=1)
    total = weight.sum()
    return torch.where(total > 0, weight * (len(f) / total), torch.ones_like(weight)).float()
