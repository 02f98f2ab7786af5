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
"is y_i rare" and "is k the target". So the positions are taken in an order: those with a common
target first, in chunks, and their gate is applied once to the sum; then, with what is left of them,
the rare ones, whose residuals `P − Q` are gated one by one, with the target's entry put back.

Cost: the three products of plain cross-entropy (6·N·V·D operations), and between them one pass over
the logits (`softmax_residual.py`). Beyond inputs and gradients, one chunk of logits is held, on a
GPU with its residual. The products take the dtype of the features (under autocast, autocast's) and
are summed in float32 (float64 for float64 features); in between, everything is in float32. In
float16, whose smallest number is above the tail of P, residuals are multiplied by up to 2^10 before
they are rounded. The host waits for a GPU only to learn how many positions are common, rare and
ignored, and not even for that if `order_positions` was called before the model's forward pass.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from .early_gradients import chunk_rows, wants_gradient, with_gradients, working_dtype
from .gates import Gates
from .softmax_residual import likelihood_residual, unlikelihood_residual
from .unlikelihood import Candidates

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
    order: "PositionOrder | None" = None,
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
        order: the result of `order_positions` for these targets, gates and `ignore_index`; None
            calls it, and then waits for a GPU.

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
    if order is None:
        order = order_positions(target, None if gates is None else gates.rare, ignore_index)
    inputs = (features.reshape(-1, features.size(-1)), weight, bias)
    values, gradients = values_and_gradients(
        *inputs,
        target.reshape(-1),
        order,
        wanted=tuple(map(wants_gradient, inputs)),
        gates=gates,
        label_smoothing=label_smoothing,
        position_weight=None if position_weight is None else position_weight.detach().reshape(-1),
        candidates=candidates,
        ul_alpha=ul_alpha,
        adv_epsilon=adv_epsilon,
        softcap=softcap,
        predict=predict,
    )
    loss = with_gradients(values["losses"].sum(), inputs, gradients, order.positions)
    fields = [values.get(name) for name in CrossEntropyOutput._fields[1:]]
    return CrossEntropyOutput(loss, *(v if v is None else v.view(target.shape) for v in fields))


class PositionOrder(NamedTuple):
    """The order in which the loop takes the positions, and how many of each kind there are."""

    rows: Tensor  # (N,) int64: positions with a common target, with a rare one, and ignored ones
    positions: Tensor  # scalar, the number of positions with a target
    sizes: Tensor  # (2,) on the host: positions with a common target, and with any
    copied: torch.cuda.Event | None = None  # passed once `sizes` is there

    def read_sizes(self) -> tuple[int, int]:
        """The numbers of positions with a common target, and with any; waits for their copy."""
        if self.copied is not None:
            self.copied.synchronize()
        common, positions = self.sizes.tolist()
        return common, positions


def order_positions(
    target: Tensor, rare: Tensor | None = None, ignore_index: int | None = -100
) -> PositionOrder:
    """Orders the positions by the kind of their target; on a GPU without making the host wait.

    Call it before the forward pass of the model: its result will be there when the loss is formed.

    Args:
        target: (...) y, int64 in [0, V), or `ignore_index`.
        rare: (V,) bool, R; None if there are no gates.
        ignore_index: the target at positions without one; None if each has one.
    """
    y = target.reshape(-1)
    ignored = torch.zeros_like(y, dtype=torch.bool) if ignore_index is None else y == ignore_index
    kind = 2 * ignored.to(torch.uint8)  # 0 common, 1 rare, 2 ignored
    if rare is not None:
        kind += rare[y.masked_fill(ignored, 0)] & ~ignored
    sizes = torch.stack([(kind == 0).sum(), (kind < 2).sum()])
    rows = kind.argsort(stable=True)
    if not sizes.is_cuda:
        return PositionOrder(rows, sizes[1], sizes)
    host = torch.empty(2, dtype=torch.int64, pin_memory=True)
    copied = torch.cuda.Event()
    host.copy_(sizes, non_blocking=True)
    copied.record()
    return PositionOrder(rows, sizes[1], host, copied)


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


@torch.no_grad()
def values_and_gradients(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    order: PositionOrder,
    *,
    wanted: tuple[bool, ...],
    gates: Gates | None = None,
    label_smoothing: float = 0.0,
    position_weight: Tensor | None = None,
    candidates: Candidates | None = None,
    ul_alpha: float = 0.0,
    adv_epsilon: float = 0.0,
    softcap: float | None = None,
    predict: bool = False,
) -> tuple[dict[str, Tensor], list[Tensor | None]]:
    """The loop over chunks of H (N, D), W (V, D), b (V,) or None and y (N,).

    `wanted`: whose gradients are wanted, of H, W and b. Returns the values (N,) by name, zero at
    ignored positions; and the gradients of the sum of the `losses`, in float32 (float64 for float64
    features), None where not wanted.
    """
    dtype, wide = product_dtype(features), working_dtype(features)
    with torch.autocast(features.device.type, enabled=False):
        # Without products of half precision that are summed in float32, the rounded numbers are
        # multiplied in float32.
        operand = dtype if sums_in_float32(dtype, features.device) else wide
        w = weight.to(dtype).to(operand)
        names = ["losses", "nll"] + ["ul_loss"] * (candidates is not None)
        names += ["adv_loss"] * (adv_epsilon > 0) + ["prediction"] * predict
        values: dict[str, list[Tensor]] = {name: [] for name in names}  # of the chunks
        grad_features, grad_weight, grad_bias = (
            torch.zeros_like(tensor, dtype=wide) if wants else None
            for tensor, wants in zip((features, weight, bias), wanted, strict=True)
        )
        scale = residual_scale(dtype, position_weight, ul_alpha if candidates is not None else 0.0)
        options = {"label_smoothing": label_smoothing, "softcap": softcap, "scale": scale}
        options["dtype"] = operand if dtype == wide else dtype

        common, positions = order.read_sizes()
        rows_in_order = order.rows[:positions]
        if common == len(target):  # nothing to order: slices are views, and nothing is copied
            rows_in_order = None
        y_in_order = target if rows_in_order is None else target.index_select(0, rows_in_order)
        omega_in_order = None if position_weight is None else position_weight.to(wide)
        if omega_in_order is not None and rows_in_order is not None:
            omega_in_order = omega_in_order.index_select(0, rows_in_order)
        size = max(1, min(chunk_rows(w), positions))
        # Products of half precision are fast where rows are aligned.
        width = len(w) if operand == wide else -(-len(w) // 8) * 8
        logits_of_chunk = w.new_empty(size, width, dtype=wide)[:, : len(w)]  # C x V
        # Chunks of common positions alone, whose sum is gated; and the rest, row by row.
        alone = positions if gates is None else common // size * size
        at_common = None if gates is None else gates.at_common_targets(like=logits_of_chunk)
        at_rare = None if gates is None else gates.at_rare_targets(like=logits_of_chunk)
        for start in range(0, positions, size):
            if start == alone > 0 and at_common is not None:
                gate_rows_(at_common, grad_weight, grad_bias)
            chunk = slice(start, min(start + size, positions))
            if rows_in_order is None:
                rows, h = None, features[chunk].to(dtype).to(operand)  # C x D
            else:
                rows = rows_in_order[chunk]  # C
                h = features.index_select(0, rows).to(dtype).to(operand)
            y = y_in_order[chunk]  # C
            omega = None if omega_in_order is None else omega_in_order[chunk]
            logits = product(h, w.t(), out=logits_of_chunk[: len(y)])
            margin = None
            if adv_epsilon:
                margin, into_target = adversarial_margin(logits, h.to(wide), w, y, adv_epsilon)
            if bias is not None:
                logits.add_(bias.to(wide))
            if predict:
                values["prediction"].append(logits.argmax(1))
            if margin is not None:
                logits.scatter_add_(1, y[:, None], -margin[:, None])
            if candidates is None:
                result = likelihood_residual(logits, y, omega, **options)
            else:
                positions_of_chunk = order.rows[chunk]
                tokens, is_candidate = candidates.at(positions_of_chunk, y)
                result = unlikelihood_residual(
                    logits, y, omega, tokens, is_candidate, alpha=ul_alpha, **options
                )
                values["ul_loss"].append(result.ul_loss)
            values["losses"].append(result.losses)
            if margin is None:
                values["nll"].append(result.nll)
            else:
                values["adv_loss"].append(result.nll)
                values["nll"].append(nll_without_margin(result.nll, margin))
            if not any(wanted):
                continue
            residual = result.matrix.to(operand)  # C x V
            if grad_features is not None:
                into_features = product(residual, w)
                if margin is not None:
                    into_features -= result.at_target[:, None] * into_target
                if rows is None:
                    grad_features[chunk] = into_features
                else:
                    grad_features.index_copy_(0, rows, into_features)
            if gates is not None and start >= alone:
                # The gates, on all but the target's entry, which is put back.
                number = max(0, common - start)  # of common positions in the chunk
                if at_common is not None:
                    residual[:number].mul_(at_common)
                if at_rare is not None:
                    residual[number:].mul_(at_rare)
                at_target = result.at_target.to(result.matrix.dtype).to(operand)
                residual.scatter_(1, y[:, None], at_target[:, None])
            if grad_bias is not None:
                grad_bias += residual.sum(0, dtype=wide)
            if grad_weight is not None:
                add_product_(grad_weight, residual.t(), h)
        if 0 < positions == alone and at_common is not None:  # the last chunk was one of these
            gate_rows_(at_common, grad_weight, grad_bias)
    gradients = [grad_features, grad_weight, grad_bias]
    if isinstance(scale, Tensor) or scale != 1:
        gradients = [None if gradient is None else gradient.div_(scale) for gradient in gradients]
    everywhere = {}
    for name, of_chunks in values.items():
        dtype = torch.int64 if name == "prediction" else wide
        everywhere[name] = torch.zeros_like(target, dtype=dtype)
        if of_chunks:
            everywhere[name].index_copy_(0, order.rows[:positions], torch.cat(of_chunks))
    return everywhere, gradients


def residual_scale(
    dtype: torch.dtype, position_weight: Tensor | None, alpha: float
) -> Tensor | float:
    """The factor of residuals: 1, but for float16 up to `HALF_SCALE`, divided by their bound.

    The entries of ω (P − Q) are at most ω, and those of the unlikelihood at most α.
    """
    if dtype != torch.float16:
        return 1.0
    if position_weight is None:
        return HALF_SCALE / max(1.0, 1.0 + alpha)
    return HALF_SCALE / (position_weight.float().amax() + alpha).clamp(min=1.0)


def adversarial_margin(
    logits: Tensor, features: Tensor, weight: Tensor, target: Tensor, epsilon: float
) -> tuple[Tensor, Tensor]:
    """The margin m (C,) by which adversarial training lowers the logits of the targets, and δ.

    The target's embedding is perturbed by the δ of length ε ‖w_y‖ that lowers its logit most, so by
    m = ε ‖w_y‖ ‖h‖, where w_y·h > 0. It is −(m / ‖h‖²) h. With δ held fixed, dz'[y]/dh = w_y + δ.

    Args:
        logits: H Wᵀ (C, V).
        features: H (C, D), in the dtype of the sums.
        weight: W (V, D).
        target: y (C,).
        epsilon: ε.

    Returns:
        m, and −δ (C, D).
    """
    squared = features.square().sum(1)  # C, ‖h‖²
    lowers = logits.gather(1, target[:, None]).squeeze(1) > 0
    norm = weight[target].to(features.dtype).norm(dim=1)  # C
    margin = epsilon * norm * squared.sqrt() * lowers
    return margin, (margin / squared.clamp(min=1e-30))[:, None] * features


def nll_without_margin(nll: Tensor, margin: Tensor) -> Tensor:
    """−log P[y] (C,), from −log P'[y] where the target's logit is lowered by m (C,).

    With A the sum of exp z over the other tokens, −log P'[y] = softplus(log A − z[y] + m). So
    log A − z[y] + m is −log P' + log(1 − P').
    """
    return torch.nn.functional.softplus(nll + torch.log(-torch.expm1(-nll)) - margin)


def gate_rows_(gate: Tensor, grad_weight: Tensor | None, grad_bias: Tensor | None) -> None:
    """Multiplies the gradients of the rows of W (V, D) and of b (V,) by their gates (V,)."""
    if grad_weight is not None:
        grad_weight.mul_(gate[:, None])
    if grad_bias is not None:
        grad_bias.mul_(gate)


def product_dtype(features: Tensor) -> torch.dtype:
    """The dtype in which a linear layer multiplies the features: theirs, or that of autocast."""
    return torch.mm(features[:0], features[:0].t()).dtype


def sums_in_float32(dtype: torch.dtype, device: torch.device) -> bool:
    """Can torch sum products of this dtype in float32, at least?

    Those of half precision on NVIDIA's GPUs, from 2.10.
    """
    has_it = device.type == "cuda" and torch.version.hip is None and torch.__version__ >= (2, 10)
    return has_it or dtype in (torch.float32, torch.float64)


def product(left: Tensor, right: Tensor, out: Tensor | None = None) -> Tensor:
    """`left @ right`, that of half precision summed and returned in float32."""
    if left.dtype in (torch.float32, torch.float64):
        return torch.mm(left, right, out=out)
    return torch.mm(left, right, out_dtype=torch.float32, out=out)


def add_product_(total: Tensor, left: Tensor, right: Tensor, alpha: float = 1.0) -> None:
    """`total += alpha · left @ right`, with `total` in float32 or float64."""
    if left.dtype == total.dtype:
        total.addmm_(left, right, alpha=alpha)
    else:
        torch.addmm(total, left, right, alpha=alpha, out_dtype=total.dtype, out=total)


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
