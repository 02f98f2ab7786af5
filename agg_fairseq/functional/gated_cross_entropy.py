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
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from .early_gradients import chunk_rows, wants_gradient, with_gradients, working_dtype
from .gates import Gates
from .host_copy import HostCopy
from .softmax_residual import ChunkValues, Terms, gate_columns_, residual_of_chunk
from .unlikelihood import Candidates


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
            that of `FaceObjective`; None is 1. It receives no gradient.
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
    check_arguments(features, target, label_smoothing)
    if position_weight is not None and position_weight.shape != target.shape:
        raise ValueError(
            f"expected position_weight {tuple(target.shape)}, got {tuple(position_weight.shape)}"
        )
    if position_weight is not None:  # whatever it is at ignored positions
        position_weight = position_weight.detach().masked_fill(target == ignore_index, 0.0)
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
        rare = None if gates is None else gates.rare
        order = order_positions(target, len(weight), rare, ignore_index)
    terms = Terms(
        vocabulary=len(weight),
        label_smoothing=label_smoothing,
        softcap=softcap,
        position_weight=None if position_weight is None else position_weight.reshape(-1),
        candidates=candidates,
        ul_alpha=ul_alpha,
        adv_epsilon=adv_epsilon,
        predict=predict,
    )
    inputs = (features.reshape(-1, features.size(-1)), weight, bias)
    values, gradients = values_and_gradients(
        *inputs,
        target.reshape(-1).contiguous(),  # which kernels read as it lies in memory
        order,
        wanted=tuple(map(wants_gradient, inputs)),
        gates=gates,
        terms=terms,
    )
    loss = with_gradients(values["losses"].sum(), inputs, gradients, order.positions)
    return CrossEntropyOutput(loss, **{name: v.view(target.shape) for name, v in values.items()})


class PositionOrder(NamedTuple):
    """The order in which the loop takes the positions, and how many of each kind there are."""

    rows: Tensor  # (N,) int64: positions with a common target, with a rare one, and ignored ones
    positions: Tensor  # scalar, the number of positions with a target
    sizes: HostCopy  # the numbers of positions with a common target, and with any


def order_positions(
    target: Tensor, vocabulary: int, rare: Tensor | None = None, ignore_index: int = -100
) -> PositionOrder:
    """Orders the positions by the kind of their target; on a GPU without making the host wait.

    Call it before the forward pass of the model: its result will be there when the loss is formed.

    Args:
        target: (...) y, int64 in [0, V), or `ignore_index`.
        vocabulary: V.
        rare: (V,) bool, R; None if there are no gates.
        ignore_index: the target at positions without one.

    Raises:
        RuntimeError: a target is out of its range; on a GPU later, without waiting.
    """
    y, ignored = known_targets(target, vocabulary, ignore_index)
    if rare is None:
        is_rare = torch.zeros(1, dtype=torch.uint8, device=y.device).expand(vocabulary)
    else:
        is_rare = rare.view(torch.uint8)
    # 0 common, 1 rare, 2 ignored. A GPU checks here that targets are in [0, V).
    kind, rows = torch.where(ignored, 2, is_rare.index_select(0, y)).sort(stable=True)
    sizes = torch.searchsorted(kind, torch.arange(1, 3, dtype=kind.dtype, device=kind.device))
    return PositionOrder(rows, sizes[1], HostCopy(sizes))


def known_targets(target: Tensor, vocabulary: int, ignore_index: int) -> tuple[Tensor, Tensor]:
    """Targets (...) as (N,), with 0 in place of `ignore_index`; and which were ignored, (N,).

    RuntimeError for a target out of [0, V), but not on a GPU, which checks what it selects by them.
    """
    y = target.reshape(-1)
    ignored = y == ignore_index
    y = y.masked_fill(ignored, 0)
    if y.device.type == "cpu" and not ((y >= 0) & (y < vocabulary)).all():
        raise RuntimeError(f"expected targets in [0, {vocabulary}) or {ignore_index} (ignored)")
    return y, ignored


def check_arguments(features: Tensor, target: Tensor, label_smoothing: float) -> None:
    """Raises ValueError for shapes and numbers that would otherwise give a wrong loss."""
    if not features.is_floating_point() or target.shape != features.shape[:-1]:
        found = f"{features.dtype} {tuple(features.shape)} and {tuple(target.shape)}"
        raise ValueError(
            f"expected floating-point features (..., D) and target of shape (...), got {found}"
        )
    if not 0 <= label_smoothing < 1:
        raise ValueError(f"expected label_smoothing in [0, 1), got {label_smoothing}")


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
    terms: Terms,
) -> tuple[dict[str, Tensor], list[Tensor | None]]:
    """The loop over chunks of H (N, D), W (V, D), b (V,) or None and y (N,).

    `wanted`: whose gradients are wanted, of H, W and b. Returns the values (N,) by name, zero at
    ignored positions; and the gradients of the sum of the `losses`, in float32 (float64 for float64
    features), None where not wanted.
    """
    dtype, wide = product_dtype(features), working_dtype(features)
    # Without products of half precision that are summed in float32, the rounded numbers are
    # multiplied in float32.
    operand = dtype if sums_in_float32(dtype, features.device) else wide
    common, positions = order.sizes.tolist()
    rows = order.rows[:positions]
    in_order = common == len(target)  # the slices of a chunk are views, and nothing is copied
    y_of_rows = target if in_order else target.index_select(0, rows)
    with torch.autocast(features.device.type, enabled=False):
        w = aligned(weight.to(dtype).to(operand))
        gradients = Gradients.zeros(features, w, bias, wanted, positions)
        margin = None
        if terms.adv_epsilon:
            margin = margins(features, weight, rows, y_of_rows, terms.adv_epsilon)
        size = max(1, min(chunk_rows(weight), positions))
        memory = w.new_empty(size, len(w), dtype=wide)  # C x V, or a little wider
        # Chunks of common positions alone, whose sum is gated; and the rest, row by row.
        alone = positions if gates is None else common // size * size
        at_common = None if gates is None else gates.at_common_targets(like=memory)
        at_rare = None if gates is None else gates.at_rare_targets(like=memory)
        results: list[ChunkValues] = []
        for start in range(0, positions, size):
            chunk = slice(start, min(start + size, positions))
            h = features[chunk] if in_order else features.index_select(0, rows[chunk])
            h, y = h.to(dtype).to(operand), y_of_rows[chunk]  # C x D, C
            logits = product(h, w.t(), out=memory[: len(y)])
            m = None if margin is None else margin[chunk]
            matrix, result = residual_of_chunk(logits, y, rows[chunk], bias, m, terms, dtype)
            results.append(result)
            residual = matrix.to(operand)  # C x V, or a little wider
            gradients.add_features(residual, w, chunk if in_order else rows[chunk])
            if start >= alone:
                number = max(0, common - start)  # of common positions in the chunk
                gate_columns_(residual[:number], y[:number], at_common)
                gate_columns_(residual[number:], y[number:], at_rare)
            gradients.add_weight(residual, h, is_first=start == 0)
            if chunk.stop == alone and at_common is not None:
                gradients.gate_rows_(at_common)
        if margin is not None and gradients.features is not None and results:
            subtract_perturbation_(gradients.features, features, rows, margin, results)
    copied = None if in_order and results else rows
    values = values_of_positions(results, copied, target, margin, terms, wide)
    return values, gradients.unscaled(terms.residual_scale(dtype), len(weight))


@dataclass
class Gradients:
    """The gradients of a loop over chunks, in the dtype of the sums; None where not wanted."""

    features: Tensor | None  # (N, D)
    weight: Tensor | None  # (V, D), or with a few more rows
    bias: Tensor | None  # (V,)

    @classmethod
    def zeros(
        cls,
        features: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        wanted: tuple[bool, ...],
        positions: int,
    ) -> "Gradients":
        """Memory for the gradients of these inputs, with zeros only where no chunk writes."""
        dtype = working_dtype(features)
        of_features = torch.empty_like if positions == len(features) else torch.zeros_like
        of_weight = torch.empty_like if positions else torch.zeros_like
        return cls(
            of_features(features, dtype=dtype) if wanted[0] else None,
            of_weight(weight, dtype=dtype) if wanted[1] else None,
            None if bias is None or not wanted[2] else torch.zeros_like(bias, dtype=dtype),
        )

    def add_features(self, residual: Tensor, weight: Tensor, rows: Tensor | slice) -> None:
        """Sets the gradient at positions `rows` from their residual (C, V)."""
        if self.features is None:
            return
        if isinstance(rows, slice):
            product(residual, weight, out=self.features[rows])
        else:
            self.features.index_copy_(0, rows, product(residual, weight))

    def add_weight(self, residual: Tensor, features: Tensor, *, is_first: bool) -> None:
        """Adds the gradients of W and b of a chunk with a gated residual (C, V) and H (C, D)."""
        if self.bias is not None:
            self.bias += residual[:, : len(self.bias)].sum(0, dtype=self.bias.dtype)
        if self.weight is not None and is_first:
            product(residual.t(), features, out=self.weight)
        elif self.weight is not None:
            add_product_(self.weight, residual.t(), features)

    def gate_rows_(self, gate: Tensor) -> None:
        """Multiplies the rows of W and the entries of b by their gates (V,)."""
        if self.weight is not None:
            self.weight[: len(gate)].mul_(gate[:, None])
        if self.bias is not None:
            self.bias.mul_(gate)

    def unscaled(self, scale: Tensor | float, vocabulary: int) -> list[Tensor | None]:
        """The gradients divided by the scale of the residuals; that of W has V rows."""
        weight = None if self.weight is None else self.weight[:vocabulary]
        gradients = [self.features, weight, self.bias]
        if isinstance(scale, Tensor) or scale != 1:
            for gradient in gradients:
                if gradient is not None:
                    gradient.div_(scale)
        return gradients


def margins(features: Tensor, weight: Tensor, rows: Tensor, y: Tensor, epsilon: float) -> Tensor:
    """The margin m = ε ‖w_y‖ ‖h‖ of adversarial training at positions `rows`, whose targets are y.

    The δ of length ε ‖w_y‖ that lowers the target's logit most is −(m / ‖h‖²) h, and lowers it by
    m.
    """
    dtype = working_dtype(features)
    of_features = torch.linalg.vector_norm(features, dim=1, dtype=dtype).index_select(0, rows)
    of_weight = torch.linalg.vector_norm(weight, dim=1, dtype=dtype).index_select(0, y)
    return epsilon * of_weight * of_features


def subtract_perturbation_(
    gradient: Tensor, features: Tensor, rows: Tensor, margin: Tensor, results: list[ChunkValues]
) -> None:
    """Adds (dL/dz[y]) δ to the gradient (N, D) of H: with δ held fixed, dz'[y]/dh is w_y + δ."""
    h = features.index_select(0, rows).to(gradient.dtype)
    at_target = torch.cat([result.at_target for result in results])
    along = at_target * margin / h.square().sum(1).clamp(min=1e-30)
    gradient.index_add_(0, rows, along[:, None] * h, alpha=-1)


def values_of_positions(
    results: list[ChunkValues],
    rows: Tensor | None,
    target: Tensor,
    margin: Tensor | None,
    terms: Terms,
    dtype: torch.dtype,
) -> dict[str, Tensor]:
    """The values of all chunks by name, (N,), zero at positions that are not in `rows`.

    Without `rows`, the chunks have all positions in order, at least one.
    """
    names = ["nll", "losses"] + ["ul_loss"] * (terms.candidates is not None)
    names += ["prediction"] * terms.predict
    values: dict[str, Tensor] = {}
    for name in names:
        of_chunks = [getattr(result, name) for result in results]
        if name == "losses" and all(result.losses is result.nll for result in results):
            values[name] = values["nll"]
        elif rows is None:
            values[name] = torch.cat(of_chunks)
        else:
            is_token = name == "prediction"
            values[name] = torch.zeros_like(target, dtype=torch.int64 if is_token else dtype)
            if results:
                values[name].index_copy_(0, rows, torch.cat(of_chunks))
    if margin is not None:
        if rows is not None:
            margin = torch.zeros_like(values["nll"]).index_copy_(0, rows, margin)
        values["adv_loss"] = values["nll"]
        values["nll"] = nll_without_margin(values["nll"], margin)
    return values


def nll_without_margin(nll: Tensor, margin: Tensor) -> Tensor:
    """−log P[y] (C,), from −log P'[y] where the target's logit is lowered by m (C,).

    With A the sum of exp z over the other tokens, −log P'[y] = softplus(log A − z[y] + m). So
    log A − z[y] + m is −log P' + log(1 − P').
    """
    return torch.nn.functional.softplus(nll + torch.log(-torch.expm1(-nll)) - margin)


def product_dtype(features: Tensor) -> torch.dtype:
    """The dtype in which a linear layer multiplies the features: theirs, or that of autocast."""
    device = features.device.type
    if torch.is_autocast_enabled(device) and features.dtype != torch.float64:
        return torch.get_autocast_dtype(device)
    return features.dtype


def aligned(weight: Tensor) -> Tensor:
    """W, in half precision with rows of zeros until their number is a multiple of 8.

    Products of half precision with another number of rows or columns take a multiple of the time
    on a GPU.
    """
    if weight.dtype in (torch.float32, torch.float64) or len(weight) % 8 == 0:
        return weight
    return torch.nn.functional.pad(weight, (0, 0, 0, -len(weight) % 8))


def sums_in_float32(dtype: torch.dtype, device: torch.device) -> bool:
    """Can torch sum products of this dtype in float32, at least?

    Those of half precision on NVIDIA's GPUs.
    """
    has_it = device.type == "cuda" and torch.version.hip is None
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
