"""The frequency-factorized softmax: the class of the next token, then the token inside its class.

    log p(k | h) = log p1(c(k) | h) + log p2(k | c(k), h)                                      (Eqs. 2 and 4)
    p1 = softmax over the C classes of H Uᵀ        p2 = softmax over the tokens of one class of H Wᵀ

with U (C, D) and W (V, D). In training `p2` is needed only inside the target's class: position i
costs `C + |class of y_i|` products of length D instead of V. With label smoothing every token has
some of the target distribution, so the cost is that of the full softmax.

Both terms are softmax layers over a part of the rows of [U; W], whose gradients are formed on the
way: the class term for all positions, the token term for positions that are sorted by the ranks of
their targets, so that each class takes a slice of them. Most classes are small, and on a GPU a small
product takes as long as its launch: where it costs less, neighboring classes are merged into one
product, and the logits of another class than the target's masked. Beyond inputs and gradients, the
loss holds one chunk of logits and the rows of one class. With label smoothing it is a loss of the
logits of [W; U], by `functional.chunked`.
"""

from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..functional.chunks import (
    HALF_SCALE,
    Chunk,
    Values,
    WithGradients,
    chunk_rows,
    chunked,
    precision,
    working_dtype,
)
from ..functional.gated_linear import refuse_second_derivatives
from ..functional.losses import check_weights, softmax_residual_
from .token_classes import SortedTargets, TokenClasses, check_classes

CACHED_ELEMENTS = 2**21
"""Logits that `joint_log_prob` normalizes at a time: 8 MiB in float32, which a processor's cache
can hold."""
GPU_ELEMENTS = 2**27
"""The same on a GPU, where launches count."""
MERGED_LOGITS = 2**10
"""Logits whose products and softmax take as long as the calls for one more class."""
GPU_MERGED_LOGITS = 2**24
"""The same on a GPU: five launches, 0.17 ms, at 8 to 12 ps for each logit (D of 512 to 1,024)."""


class FactorizedOutput(NamedTuple):
    """The result of `factorized_cross_entropy`; everything in nats, zero at ignored positions."""

    loss: Tensor  # scalar, summed over positions; the only field that carries a gradient
    # The others are shaped like `target`.
    nll: Tensor  # −log p(y_i), the sum of the two that follow
    losses: Tensor  # the summands of `loss`; equal to `nll` without label smoothing
    class_nll: Tensor  # −log p1 of the target's class
    token_nll: Tensor  # −log p2 of the target inside its class


def factorized_cross_entropy(
    features: Tensor,
    weight: Tensor,
    class_weight: Tensor,
    target: Tensor,
    classes: TokenClasses,
    *,
    label_smoothing: float = 0.0,
    ignore_index: int = -100,
    sorted_targets: SortedTargets | None = None,
) -> FactorizedOutput:
    """The negative log-likelihood of the factorized softmax; ValueError for shapes that do not fit.

    Equal in value and gradient to `F.nll_loss` of `joint_log_prob`, summed. `backward` may run once,
    since the graph holds the gradients themselves.

    Args:
        features: (..., D) H, floating point.
        weight: (V, D) W, the output embedding of the tokens (o in the paper).
        class_weight: (C, D) U, the output embedding of the classes (u in the paper).
        target: (...) y, int64 in [0, V), or `ignore_index`.
        classes: the class of each token.
        label_smoothing: ε in [0, 1], over the joint distribution: every token gets ε/V, and the
            target the rest.
        ignore_index: target value of the positions that contribute nothing (padding).
        sorted_targets: `classes.sort(target, ignore_index)`, if it was called before.

    Examples:
        >>> H, W, U = torch.ones(1, 3), torch.zeros(4, 3), torch.zeros(2, 3, requires_grad=True)
        >>> classes = TokenClasses.of(torch.tensor([0, 1, 1, 1]))
        >>> out = factorized_cross_entropy(H, W, U, torch.tensor([3]), classes)
        >>> round(out.class_nll.item(), 4), round(out.token_nll.item(), 4)  # log 2, log 3
        (0.6931, 1.0986)

    Reference: Choi et al. (2020), Eqs. 2–4.
    """
    if not features.is_floating_point() or target.shape != features.shape[:-1]:
        found = f"{features.dtype} {tuple(features.shape)} and {tuple(target.shape)}"
        raise ValueError(
            f"expected floating-point features (..., D) and target of shape (...), got {found}"
        )
    check_weights(label_smoothing)
    check_classes(weight, class_weight, classes)
    if label_smoothing:
        loss, values = chunked(
            partial(smoothed_losses, classes=classes, label_smoothing=label_smoothing),
            features,
            torch.cat([weight, class_weight.to(weight.dtype)]),
            target,
            ignore_index=ignore_index,
        )
        losses, class_nll, token_nll = values["losses"], values["class_nll"], values["token_nll"]
        return FactorizedOutput(loss, class_nll + token_nll, losses, class_nll, token_nll)
    if sorted_targets is None:
        sorted_targets = classes.sort(target, ignore_index)
    inputs = features.reshape(-1, features.size(-1)), weight, class_weight
    (class_nll, token_nll), gradients = _values_and_gradients(inputs, classes, sorted_targets)
    losses = (class_nll + token_nll).view(target.shape)
    loss = WithGradients.apply(losses, gradients, target != ignore_index, None, *inputs)
    return FactorizedOutput(
        loss, losses, losses, class_nll.view(target.shape), token_nll.view(target.shape)
    )


def smoothed_losses(
    logits: Tensor, chunk: Chunk, *, classes: TokenClasses, label_smoothing: float
) -> Values:
    """The losses with label smoothing, −log p1 and −log p2 of the targets, (n,) each, from logits
    (n, V + C): z of the tokens, then those of the classes.

    Of the target distribution Q each token has `share`, and the target `extra` more. With Q_c
    its sum over class c, and l_c the logsumexp of the logits z of the class, the loss is

        −Σ_c Q_c (log p1[c] − l_c) − Σ_k Q[k] z[k].
    """
    share, extra = label_smoothing / classes.vocabulary, 1 - label_smoothing
    z, class_logits = logits.split([classes.vocabulary, classes.number], 1)
    z = z - z.detach().amax(1, keepdim=True)  # what is common to a row would cost digits
    log_p1 = class_logits.log_softmax(1)  # n x C
    log_sums = classes.reduce(z, torch.logsumexp, -torch.inf)  # n x C
    y, class_of_target = chunk.target[:, None], classes.class_ids[chunk.target][:, None]
    z_at_target = z.gather(1, y)
    q = (share * classes.sizes.to(z.dtype)).repeat(len(z), 1)  # n x C
    q.scatter_add_(1, class_of_target, torch.full_like(z_at_target.detach(), extra))
    losses = (q * (log_sums - log_p1)).sum(1) - share * z.sum(1) - extra * z_at_target[:, 0]
    return {
        "losses": losses,
        "class_nll": -log_p1.gather(1, class_of_target)[:, 0],
        "token_nll": (log_sums.gather(1, class_of_target) - z_at_target)[:, 0],
    }


def _values_and_gradients(
    inputs: tuple[Tensor, Tensor, Tensor], classes: TokenClasses, order: SortedTargets
) -> tuple[Tensor, list[Tensor | None]]:
    """−log p1 and −log p2 as one tensor (2, N), zero at ignored positions; and the gradients of
    their sum with respect to H (N, D), W (V, D) and U (C, D), None where not wanted."""
    features, weight, class_weight = inputs
    dtype, wide, operand, _ = precision(features)
    wanted = [one.requires_grad and torch.is_grad_enabled() for one in inputs]
    starts = order.starts.read().tolist()  # a GPU is waited for, unless the numbers have arrived
    kept = order.positions[: starts[-1]]  # n <= N
    target_table = order.target_table[:, : len(kept)]
    with torch.no_grad(), torch.autocast(features.device.type, enabled=False):
        h = features.index_select(0, kept).to(dtype).to(operand)  # n x D
        w = weight.to(dtype).to(operand)
        gradients = [
            torch.zeros_like(one, dtype=wide) if is_wanted else None
            for one, is_wanted in zip((h, weight, class_weight), wanted, strict=True)
        ]
        # All in float32, since each row of U is a sum over many positions.
        u, target_class = class_weight.to(wide), target_table[3]
        parts = [h.new_empty(0, dtype=wide)]  # there may be no positions
        _add_term(h.to(wide), u, target_class, None, parts, gradients[0], gradients[2])
        token_nll = _add_token_terms(h, w, starts, target_table, classes, *gradients[:2])
        values = torch.stack([torch.cat(parts), token_nll])
        if gradients[0] is not None:
            all_features_grad = torch.zeros_like(features, dtype=wide)
            gradients[0] = all_features_grad.index_copy_(0, kept, gradients[0])
        return values.new_zeros(2, len(features)).index_copy_(1, kept, values), gradients


def _add_token_terms(
    h: Tensor,
    w: Tensor,
    starts: list[int],
    target_table: Tensor,
    classes: TokenClasses,
    grad_h: Tensor | None,
    grad_weight: Tensor | None,
) -> Tensor:
    """The softmax inside the classes: returns −log p2 (n,) of the targets, and adds its gradients.

    Each product takes the positions and the tokens of one class or of several neighbors. Merging n
    positions and M tokens with a class of n' and M' adds n·M' + n'·M logits. What has one token is
    left out, since p2 is 1 there whatever the logit, and so is what has no position.
    """
    most = GPU_MERGED_LOGITS if h.is_cuda else MERGED_LOGITS
    multiple = 16 if h.dtype in (torch.float16, torch.bfloat16) else 1  # as in `chunked`
    parts = [h.new_empty(0, dtype=working_dtype(h))]
    first = 0
    for last in range(classes.number):
        start, stop = starts[first], starts[last + 1]
        number = classes.starts[last + 1] - classes.starts[first]  # M
        if last + 1 < classes.number:
            more_positions = starts[last + 2] - stop
            more_tokens = classes.starts[last + 2] - classes.starts[last + 1]
            if (stop - start) * more_tokens + more_positions * number <= most:
                continue
        if number == 1:
            parts.append(parts[0].new_zeros(stop - start))
        elif start < stop:
            tokens, shift = classes.tokens(first, last, multiple)
            rows, span = w[tokens], slice(start, stop)
            columns = target_table[:3, span] - shift  # 3 x n
            ranges = None if first == last and len(rows) == number else columns[1:]
            span_grad = None if grad_h is None else grad_h[span]
            rows_grad = None if grad_weight is None else grad_weight[tokens]
            _add_term(h[span], rows, columns[0], ranges, parts, span_grad, rows_grad)
            if grad_weight is not None and rows_grad is not None and not isinstance(tokens, slice):
                grad_weight[tokens] = rows_grad
        first = last + 1
    return torch.cat(parts)


def _add_term(
    h: Tensor,
    rows: Tensor,
    y: Tensor,
    ranges: Tensor | None,
    nll: list[Tensor],
    grad_h: Tensor | None,
    grad_rows: Tensor | None,
) -> None:
    """A softmax over M rows (M, D), for n positions h (n, D) with targets y (n,).

    Args:
        ranges: (2, n), at each position the first of the rows that compete, and the last, excluded;
            None: all of them.
        nll: to which −log p (n,) of the targets is appended, in parts.
        grad_h: (n, D), to which the gradient is added, None if it is not wanted.
        grad_rows: (M, D), the same.
    """
    scale = HALF_SCALE if h.dtype == torch.float16 else 1.0
    sums: Any = {} if h.dtype == working_dtype(h) else {"out_dtype": torch.float32}
    step = chunk_rows(rows)
    for start in range(0, len(h), step):
        part = slice(start, start + step)
        features, ranges_of_part = h[part], None if ranges is None else ranges[:, part]
        logits = torch.mm(features, rows.t(), **sums)
        factor = None if scale == 1 else torch.full_like(logits[:, 0], scale)
        residual, values, _ = softmax_residual_(
            logits, y[part], factor, h.dtype, ranges=ranges_of_part
        )
        nll.append(values)
        if grad_h is not None:
            total = grad_h[part]
            torch.addmm(total, residual, rows, alpha=1 / scale, out=total, **sums)
        if grad_rows is not None:
            torch.addmm(grad_rows, residual.t(), features, alpha=1 / scale, out=grad_rows, **sums)


def class_log_prob(features: Tensor, class_weight: Tensor) -> Tensor:
    """log p1, (..., C), in float32 (float64 for float64 features)."""
    dtype = working_dtype(features)
    with torch.autocast(features.device.type, enabled=False):
        return F.log_softmax(F.linear(features.to(dtype), class_weight.to(dtype)), dim=-1)


def joint_log_prob(
    features: Tensor, weight: Tensor, class_weight: Tensor, classes: TokenClasses
) -> Tensor:
    """log p of every token, `log p1 + log p2`, normalized: (..., V), at least float32;
    differentiable.

    The logits are formed in the wider dtype of features and weight; arguments as those of
    `factorized_cross_entropy`.
    Cost: that of a softmax over V, and one more pass over the logits.
    """
    check_classes(weight, class_weight, classes)
    shape = (*features.shape[:-1], classes.vocabulary)
    features = features.reshape(-1, features.size(-1))
    log_p1 = class_log_prob(features, class_weight)  # N x C
    logits = linear(features, weight).to(log_p1.dtype)  # N x V
    return _JointLogProb.apply(logits, log_p1, classes).view(shape)


class _JointLogProb(torch.autograd.Function):
    """Normalizes the logits inside each class and adds log p1, in the memory of the logits."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, log_p1: Tensor, classes: TokenClasses) -> Tensor:
        """Joint log-probabilities (N, V) of logits (N, V) and log p1 (N, C), in place."""
        rows = _rows_at_a_time(logits)
        for part, log_p1_of_part in zip(logits.split(rows), log_p1.split(rows), strict=True):
            shift = log_p1_of_part - classes.reduce(part, torch.logsumexp, -torch.inf)  # n x C
            part.add_(classes.spread(shift))
        ctx.mark_dirty(logits)
        ctx.save_for_backward(logits, log_p1)
        ctx.classes = classes
        return logits

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """With g the gradient (N, V) and s its sum over a class: `g − p2·s` for the logits, and s
        for log p1."""
        refuse_second_derivatives()
        joint, log_p1 = ctx.saved_tensors
        class_ids, rows = ctx.classes.class_ids, _rows_at_a_time(joint)
        grad_logits, sums = torch.empty_like(gradient), torch.empty_like(log_p1)
        for start in range(0, len(joint), rows):
            part = slice(start, start + rows)
            sums[part] = ctx.classes.reduce(gradient[part], torch.sum, 0.0)
            p2 = (joint[part] - log_p1[part].index_select(1, class_ids)).exp_()
            class_sums = sums[part].index_select(1, class_ids)
            torch.addcmul(gradient[part], p2, class_sums, value=-1, out=grad_logits[part])
        return grad_logits, sums, None


def _rows_at_a_time(logits: Tensor) -> int:
    """The rows of (N, V) that are normalized at a time, at least one."""
    return max(1, (GPU_ELEMENTS if logits.is_cuda else CACHED_ELEMENTS) // logits.size(1))


def linear(features: Tensor, weight: Tensor) -> Tensor:
    """H Wᵀ in the wider dtype of the two."""
    dtype = torch.promote_types(features.dtype, weight.dtype)
    return F.linear(features.to(dtype), weight.to(dtype))
