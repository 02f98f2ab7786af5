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
be held back: else every position pushes the bias down for all tokens but its target, and what
degenerates is the bias.

Neither the logits nor `G` ever exist for all positions: `G` depends on the position only through
"is y_i rare" and "is k the target". So the positions with a common target come first, in chunks,
and their gate is applied once to the sum; then, with what is left of them, the rare ones, whose
residuals `P − Q` are gated one by one, with the target's entry put back.

Cost: the three products of plain cross-entropy (6·N·V·D operations), and between them one pass over
the logits (`softmax_layer.py`). Beyond inputs and gradients, one chunk of logits is held. The
gradients are formed in the forward pass, so that nothing is computed twice, and half precision does
not make them underflow before the loss scale is applied. The products take the dtype of the
features (under autocast, autocast's) and are summed in float32 (float64 for float64 features); in
between, everything is in float32. In float16, whose smallest number is above the tail of P,
residuals are multiplied by up to 2^10 before they are rounded. The host waits for a GPU only to
learn how many positions are common, rare and ignored (see `order_positions`).
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .gates import Gates
from .softmax_layer import (
    ChunkValues,
    Terms,
    add_product_,
    aligned,
    chunk_rows,
    compiled,
    gate_columns_,
    product,
    product_dtype,
    residual_of_chunk,
    sums_in_float32,
    working_dtype,
)
from .unlikelihood import Candidates

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

    without the logits of more than one chunk of positions at a time.

    Args:
        input: (..., D) H, floating point.
        linear_weight: (V, D) W, the output embedding.
        target: (...) y, int64 in [0, V), or `ignore_index`.
        linear_bias: (V,) b, gated like W.
        gates: how much of the gradient each row of W and entry of b receives; None is all of it.
        reduction: "mean" over the targets, "sum", or "none", for which the gradient is formed in
            the backward pass, where the logits are computed once more.
        ignore_index: the target at positions that contribute nothing (padding).
        label_smoothing: ε in [0, 1]. As torch does it, each token gets ε/V, and the target the rest.

    Returns:
        A scalar, or the losses (...), in nats, in float32 (float64 for float64 features).

    Raises:
        ValueError, RuntimeError: as `gated_likelihood`.

    Examples:
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
    options: dict[str, Any] = {
        "gates": gates, "ignore_index": ignore_index, "label_smoothing": label_smoothing,
    }  # fmt: skip
    if reduction == "none":
        # under autocast, which ends before the backward pass
        input = input.to(product_dtype(input))
        return _LossOfPositions.apply(options, target, input, linear_weight, linear_bias)
    loss = gated_likelihood(input, linear_weight, target, bias=linear_bias, **options).loss
    return loss / (target != ignore_index).sum() if reduction == "mean" else loss


class CrossEntropyOutput(NamedTuple):
    """The result of `gated_likelihood`; in nats, zero at ignored positions."""

    loss: Tensor  # scalar, summed over positions; the only field that carries a gradient
    # The others are shaped like `target`.
    nll: Tensor  # −log P[i, y_i]
    losses: Tensor  # the summands of `loss`: `nll` with label smoothing, weight and terms
    ul_loss: Tensor | None = None  # the unlikelihood before its weight; None without candidates
    adv_loss: Tensor | None = None  # −log P' of the lowered logits; None without adv_epsilon
    prediction: Tensor | None = None  # the arg-max of P, int64; None without `predict`


def gated_likelihood(
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
    """`gated_cross_entropy` with reduction="sum", its values at each position, and terms that may
    be added to it.

    Equal in value and gradient to `naive_gated_cross_entropy` of the same arguments. `backward` may
    run once, since the graph holds the gradients themselves.

    Args:
        features: (..., D) H, floating point.
        weight: (V, D) W, the output embedding.
        target: (...) this, `gates`, `label_smoothing` and `ignore_index` as of
            `gated_cross_entropy`.
        bias: (V,) b, gated like W.
        position_weight: like `target`, the weight of the likelihood of each position; None is 1. It
            receives no gradient.
        candidates: tokens that should not follow, which adds `−α Σ_c log(1 − P[c])` at each
            position of the flattened `target`. The gates act on the gradient of the sum.
        ul_alpha: α >= 0.
        adv_epsilon: ε >= 0 of adversarial training (Wang, Gong & Liu 2019): the logit of the target
            is lowered by `ε ‖w_y‖ ‖h‖` where `w_y·h > 0`, which is what a perturbation of w_y of
            length `ε ‖w_y‖` can do at most. All terms are those of the lowered logits. The
            perturbation carries no gradient.
        scale: s, not 0: the logits are s (H Wᵀ + b).
        softcap: c > 0 bounds the logits z to c tanh(z / c), as in Gemma 2; not with `adv_epsilon`.
        predict: also return the arg-max of P, without `adv_epsilon`.
        order: of `order_positions`, for the same targets and gates; None calls it, and waits for a
            GPU.

    Raises:
        ValueError: a shape or a number is out of its range, or `features` are not floating point.
        RuntimeError: a target is out of its range, or arguments do not fit.
    """
    check_arguments(features, target, label_smoothing)
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"expected bias {tuple(weight.shape[:1])}, got {tuple(bias.shape)}")
    if position_weight is not None:
        if position_weight.shape != target.shape:
            found = tuple(position_weight.shape)
            raise ValueError(f"expected position_weight {tuple(target.shape)}, got {found}")
        # 0 at ignored positions, where it may be NaN
        position_weight = position_weight.detach().masked_fill(target == ignore_index, 0.0)
        position_weight = position_weight.reshape(-1)
    check_weights(ul_alpha=ul_alpha, adv_epsilon=adv_epsilon)
    if not math.isfinite(scale) or scale == 0:
        raise ValueError(f"expected a finite scale that is not 0, got {scale}")
    if softcap is not None and (adv_epsilon or not 0 < softcap < math.inf):
        raise ValueError(
            f"expected softcap above 0, without adv_epsilon; got {softcap} and {adv_epsilon}"
        )
    if scale != 1:  # s (H Wᵀ + b) = (s H) Wᵀ + s b
        features, bias = features * scale, None if bias is None else bias * scale
    if order is None:
        rare = None if gates is None else gates.rare
        order = order_positions(target, len(weight), rare, ignore_index)
    if (number := len(order.positions)) != target.numel():
        raise ValueError(f"expected the order of {target.numel()} targets, got that of {number}")
    terms = Terms(
        vocabulary=len(weight),
        label_smoothing=label_smoothing,
        softcap=softcap,
        position_weight=position_weight,
        candidates=candidates,
        ul_alpha=ul_alpha,
        adv_epsilon=adv_epsilon,
        predict=predict,
    )
    inputs = (features.reshape(-1, features.size(-1)), weight, bias)
    values, gradients = values_and_gradients(
        *inputs,
        order,
        wanted=tuple(map(wants_gradient, inputs)),
        gates=gates,
        terms=terms,
    )
    loss = with_gradients(values["losses"], inputs, gradients, order.number)
    return CrossEntropyOutput(loss, **{name: v.view(target.shape) for name, v in values.items()})


class HostCopy:
    """Numbers on their way to the host, which waits for them when it reads them."""

    def __init__(self, numbers: Tensor) -> None:
        self._numbers = numbers.to("cpu", non_blocking=True)
        self._arrival = (
            torch.cuda.current_stream(numbers.device).record_event() if numbers.is_cuda else None
        )

    def read(self) -> Tensor:
        """The numbers; on a CPU the very tensor that was given."""
        if self._arrival is not None:
            self._arrival.synchronize()
        return self._numbers


class PositionOrder(NamedTuple):
    """The order in which the loop takes the positions: those whose target is common, those whose
    target is rare, and those without one; within each kind as they come."""

    positions: Tensor  # (N,) int64
    target: Tensor  # (N,) int64, their targets, 0 where there is none
    sizes: HostCopy  # the numbers of positions with a common target, and with any

    @property
    def number(self) -> int:
        """The number of positions with a target."""
        return self.sizes.read().tolist()[1]


def order_positions(
    target: Tensor, vocabulary: int, rare: Tensor | None = None, ignore_index: int = -100
) -> PositionOrder:
    """Sorts the positions by the kinds of their targets y (...), in [0, V) or `ignore_index`, with
    the rare tokens R (V,) bool, None without gates; on a GPU without making the host wait.

    Call it before the forward pass of the model: its result will be there when the loss is formed.
    RuntimeError, on a GPU later, for a target out of its range.
    """
    y, ignored = known_targets(target, vocabulary, ignore_index)
    if rare is None:
        rare = torch.zeros(1, dtype=torch.bool, device=y.device).expand(vocabulary)
    # on a GPU, this checks that targets are in [0, V)
    kind = rare.view(torch.uint8).index_select(0, y).masked_fill_(ignored, 2)
    kind, positions = kind.sort(stable=True)
    borders = torch.arange(1, 3, dtype=kind.dtype, device=kind.device)
    sizes = HostCopy(torch.searchsorted(kind, borders))
    return PositionOrder(positions, y.index_select(0, positions), sizes)


def known_targets(target: Tensor, vocabulary: int, ignore_index: int) -> tuple[Tensor, Tensor]:
    """Targets (...) as (N,), with 0 in place of `ignore_index`; and which were ignored, (N,).

    RuntimeError for one out of [0, V), but not on a GPU, which checks what it selects by them.
    """
    y = target.reshape(-1)
    ignored = y == ignore_index
    y = y.masked_fill(ignored, 0)
    if y.device.type == "cpu" and len(y):
        least, most = map(int, y.aminmax())
        if least < 0 or most >= vocabulary:
            raise RuntimeError(f"expected targets in [0, {vocabulary}) or {ignore_index} (ignored)")
    return y, ignored


def check_arguments(features: Tensor, target: Tensor, label_smoothing: float) -> None:
    """Raises ValueError for shapes and dtypes that would give a wrong loss."""
    if not features.is_floating_point() or target.shape != features.shape[:-1]:
        found = f"{features.dtype} {tuple(features.shape)} and {tuple(target.shape)}"
        raise ValueError(
            f"expected floating-point features (..., D) and target of shape (...), got {found}"
        )
    check_weights(label_smoothing)


def check_weights(label_smoothing: float = 0.0, **weights: float) -> None:
    """Raises ValueError for an ε out of [0, 1], or a weight that is negative or not finite."""
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"expected label_smoothing in [0, 1], got {label_smoothing}")
    for name, weight in weights.items():
        if not 0 <= weight < math.inf:
            raise ValueError(f"expected {name} of at least 0, got {weight}")


@torch.no_grad()
def values_and_gradients(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    order: PositionOrder,
    *,
    wanted: tuple[bool, ...],
    gates: Gates | None,
    terms: Terms,
) -> tuple[dict[str, Tensor], list[Tensor | None]]:
    """The loop over chunks of H (N, D), with W (V, D), and b (V,) or None.

    `wanted`: whose gradients are wanted, of H, W and b. Returns the values (N,) by name, zero at
    ignored positions; and the gradients of the sum of the `losses`, in float32 (float64 for float64
    features), None where not wanted.
    """
    dtype, wide = product_dtype(features), working_dtype(features)
    # else the rounded numbers are multiplied in float32
    operand = dtype if sums_in_float32(dtype, features.device) else wide
    common, positions = order.sizes.read().tolist()
    # Where all positions are common, they stay in order: their chunks are views.
    in_order = 0 < common == len(order.positions)
    rows, y_of_rows = order.positions[:positions], order.target[:positions]
    with torch.autocast(features.device.type, enabled=False):
        w = aligned(weight.to(dtype).to(operand))
        gradients = Gradients(features, w, bias, wanted, positions)
        margin = None
        if terms.adv_epsilon:
            margin = margins(features, weight, rows, y_of_rows, terms.adv_epsilon)
        size = max(1, min(chunk_rows(weight), positions))
        memory = w.new_empty(size, len(w), dtype=wide)  # C x V, or a little wider
        # chunks of common positions alone, whose sum is gated
        alone = positions if gates is None else common // size * size
        at_common = None if gates is None or gates.g1 is None else gates.g1.to(wide)
        at_rare = None if gates is None or gates.g2 is None else gates.g2.to(wide)
        none = memory.new_empty(0)
        results = [ChunkValues(none, none, none, none, rows[:0])]  # there may be no positions
        for start in range(0, positions, size):
            chunk = slice(start, min(start + size, positions))
            rows_of_chunk = rows[chunk]
            h = features[chunk] if in_order else features.index_select(0, rows_of_chunk)
            h, y = h.to(dtype).to(operand), y_of_rows[chunk]  # C x D, C
            logits = product(h, w.t(), out=memory[: len(y)])
            m = None if margin is None else margin[chunk]
            matrix, result = residual_of_chunk(logits, y, rows_of_chunk, bias, m, terms, dtype)
            results.append(result)
            residual = matrix.to(operand)  # C x V, or a little wider
            gradients.add_features(residual, w, chunk if in_order else rows_of_chunk)
            if start >= alone:
                number = max(0, common - start)  # of common positions in the chunk
                gate_columns_(residual[:number], y[:number], at_common)
                gate_columns_(residual[number:], y[number:], at_rare)
            gradients.add_weight(residual, h, is_first=start == 0)
            if chunk.stop == alone and at_common is not None:
                gradients.gate_rows_(at_common)
        if margin is not None and gradients.features is not None:
            subtract_perturbation_(gradients.features, features, rows, margin, results)
    copied = None if in_order else rows
    values = values_of_positions(results, copied, len(features), margin, terms)
    return values, gradients.unscaled(terms.residual_scale(dtype), len(weight))


class Gradients:
    """The gradients of a loop over chunks, in the dtype of the sums; None where not wanted."""

    features: Tensor | None = None  # (N, D)
    weight: Tensor | None = None  # (V, D), or with a few more rows
    bias: Tensor | None = None  # (V,)

    def __init__(
        self,
        features: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        wanted: tuple[bool, ...],
        positions: int,
    ) -> None:
        dtype = working_dtype(features)
        if wanted[0]:  # zeros only where no chunk writes
            new = torch.empty_like if positions == len(features) else torch.zeros_like
            self.features = new(features, dtype=dtype)
        if wanted[1]:
            self.weight = (torch.empty_like if positions else torch.zeros_like)(weight, dtype=dtype)
        if wanted[2] and bias is not None:
            self.bias = torch.zeros_like(bias, dtype=dtype)

    def add_features(self, residual: Tensor, weight: Tensor, rows: Tensor | slice) -> None:
        """Sets the gradient of H at positions `rows` from their residual (C, V)."""
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
            compiled(_multiply_rows_, (self.weight[: len(gate)], gate))
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


def _multiply_rows_(matrix: Tensor, factors: Tensor) -> None:
    matrix.mul_(factors[:, None])


def margins(features: Tensor, weight: Tensor, rows: Tensor, y: Tensor, epsilon: float) -> Tensor:
    """The margin m = ε ‖w_y‖ ‖h‖ of adversarial training at positions `rows` with targets y: the δ
    of length ε ‖w_y‖ that lowers the target's logit most, by m, is −(m / ‖h‖²) h."""
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
    number: int,
    margin: Tensor | None,
    terms: Terms,
) -> dict[str, Tensor]:
    """The values of all chunks by name, (N,), zero at positions that are not in `rows`; None has
    all N = `number` positions in order."""

    def of_positions(name: str) -> Tensor:
        """A field of `ChunkValues` for all positions, (N,)."""
        values = torch.cat([getattr(result, name) for result in results])
        return values if rows is None else values.new_zeros(number).index_copy_(0, rows, values)

    nll = of_positions("nll")
    values = {"nll": nll, "losses": nll}
    if any(result.losses is not result.nll for result in results):
        values["losses"] = of_positions("losses")
    if terms.candidates is not None:
        values["ul_loss"] = of_positions("ul_loss")
    if terms.predict:
        values["prediction"] = of_positions("prediction")
    if margin is not None:
        if rows is not None:
            margin = torch.zeros_like(nll).index_copy_(0, rows, margin)
        values["adv_loss"], values["nll"] = nll, nll_without_margin(nll, margin)
    return values


def nll_without_margin(nll: Tensor, margin: Tensor) -> Tensor:
    """−log P[y] (C,), from −log P'[y] where the target's logit is lowered by m (C,).

    With A the sum of exp z over the other tokens, −log P'[y] = softplus(log A − z[y] + m), so that
    log A − z[y] + m is −log P' + log(1 − P').
    """
    return F.softplus(nll + torch.log(-torch.expm1(-nll)) - margin)


def wants_gradient(tensor: Tensor | None) -> bool:
    """Will a backward pass ask for the gradient of this tensor?"""
    return tensor is not None and tensor.requires_grad and torch.is_grad_enabled()


def with_gradients(
    losses: Tensor,
    inputs: Sequence[Tensor | None],
    gradients: Sequence[Tensor | None],
    positions: int,
) -> Tensor:
    """The sum of losses (N,) over so many `positions`, as a function of `inputs` with these
    gradients, if wanted.

    `backward` multiplies the gradients in their own memory: a second run is a RuntimeError, and so
    are second derivatives. A loss without positions has a gradient of 0, also where it is divided
    by their number.
    """
    return _WithGradients.apply(losses, gradients, positions, *inputs)


class _WithGradients(torch.autograd.Function):
    """The sum of losses (N,), and gradients of the shapes of the inputs times that of the sum."""

    @staticmethod
    def forward(ctx: Any, losses: Tensor, gradients: Any, positions: int, *inputs: Any) -> Tensor:
        ctx.gradients, ctx.positions = gradients, positions
        ctx.dtypes = [None if tensor is None else tensor.dtype for tensor in inputs]
        return losses.sum()

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivatives()
        if ctx.gradients is None:
            raise RuntimeError(
                "backward ran twice over the same loss, whose gradients are used up; compute the "
                "loss again"
            )
        gradients, ctx.gradients = ctx.gradients, None
        found = [gradient for gradient in gradients if gradient is not None]
        # Without targets they are 0, and stay so where the loss is divided by 0. A pass over them
        # is saved where the factor is 1; but to read it on a GPU is to wait for that.
        if ctx.positions and (grad_loss.is_cuda or grad_loss.item() != 1):
            torch._foreach_mul_(found, grad_loss)
        results = [
            None if gradient is None else gradient.to(dtype)
            for gradient, dtype in zip(gradients, ctx.dtypes, strict=True)
        ]
        return None, None, None, *results


class _LossOfPositions(torch.autograd.Function):
    """The losses of `gated_cross_entropy` without reduction.

    Their factors in the gradient of W are known in the backward pass alone: there they are the
    weights of the positions.
    """

    @staticmethod
    def forward(ctx: Any, options: dict[str, Any], target: Tensor, *inputs: Any) -> Tensor:
        ctx.options = options
        ctx.save_for_backward(target, *inputs)
        features, weight, bias = inputs
        return gated_likelihood(features, weight, target, bias=bias, **options).losses

    @staticmethod
    def backward(ctx: Any, grad_losses: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivatives()
        target, *inputs = ctx.saved_tensors
        copies: list[Any] = [
            None if one is None else one.detach().requires_grad_(is_wanted)
            for one, is_wanted in zip(inputs, ctx.needs_input_grad[2:], strict=True)
        ]
        features, weight, bias = copies
        with torch.enable_grad():
            options = {"position_weight": grad_losses, **ctx.options}
            loss = gated_likelihood(features, weight, target, bias=bias, **options).loss
        loss.backward()
        return None, None, *(None if one is None else one.grad for one in copies)


def refuse_second_derivatives() -> None:
    """Raises RuntimeError in a backward pass with create_graph, where torch's `once_differentiable`
    would not if the incoming gradient has no graph: second derivatives would then be wrong."""
    if torch.is_grad_enabled():
        raise RuntimeError("this loss has no second derivatives; leave out create_graph=True")
