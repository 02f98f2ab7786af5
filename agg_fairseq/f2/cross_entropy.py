"""The frequency-factorized softmax: the class of the next token, then the token inside its class.

    log p(k | h) = log p1(c(k) | h) + log p2(k | c(k), h)                                      (Eqs. 2 and 4)
    p1 = softmax over the C classes of H Uᵀ        p2 = softmax over the tokens of one class of H Wᵀ

with U (C, D) and W (V, D). In training `p2` is needed only inside the target's class: position i
costs `C + |class of y_i|` products of length D instead of V. With label smoothing every token has
some of the target distribution, so the cost is that of the full softmax.

Both terms are softmax layers over a part of the rows of [U; W], whose gradients are formed on the
way: the class term for all positions, the token term for positions that are sorted by the class of
their targets, so that each class takes a slice of them. Most classes are small, and on a GPU a small
product takes as long as its launch: where it costs less, neighboring classes are merged into one
product, and the logits of another class than the target's masked. Beyond inputs and gradients, the
loss holds one chunk of logits and the rows of one class.
"""

from itertools import pairwise
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..functional.gated_cross_entropy import (
    check_arguments,
    refuse_second_derivatives,
    wants_gradient,
    with_gradients,
)
from ..functional.softmax_layer import (
    Terms,
    add_product_,
    aligned,
    chunk_rows,
    likelihood_residual,
    product,
    product_dtype,
    sums_in_float32,
    working_dtype,
)
from .token_classes import SortedTargets, TokenClasses, check_classes

CACHED_ELEMENTS = 2**21
"""Logits that `joint_log_prob` normalizes at a time: 8 MiB in float32, which a processor's cache
can hold."""
GPU_ELEMENTS = 2**27
"""The same on a GPU, where launches count."""
MERGED_LOGITS = 2**10
"""Logits whose products and softmax take as long as the calls for one more class."""
GPU_MERGED_LOGITS = 2**23
"""The same on a GPU: a dozen launches, 0.1 ms, at 8 to 12 ps for each logit (D of 512 to 1,024)."""


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
    check_arguments(features, target, label_smoothing)
    check_classes(weight, class_weight, classes)
    if sorted_targets is None:
        sorted_targets = classes.sort(target, ignore_index)
    features = features.reshape(-1, features.size(-1))
    inputs, dtype = (features, weight, class_weight), product_dtype(features)
    with torch.autocast(features.device.type, enabled=False):
        values, gradients = _values_and_gradients(
            *inputs,
            classes,
            sorted_targets,
            label_smoothing,
            dtype=dtype,
            wanted=tuple(map(wants_gradient, inputs)),
        )
    loss = with_gradients(values[0], inputs, gradients, sorted_targets.on_host.read().tolist()[-1])
    losses, class_nll, token_nll = values.view(3, *target.shape)
    return FactorizedOutput(loss, class_nll + token_nll, losses, class_nll, token_nll)


@torch.no_grad()
def _values_and_gradients(
    features: Tensor,
    weight: Tensor,
    class_weight: Tensor,
    classes: TokenClasses,
    order: SortedTargets,
    label_smoothing: float,
    *,
    dtype: torch.dtype,
    wanted: tuple[bool, ...],
) -> tuple[Tensor, list[Tensor | None]]:
    """The losses, −log p1 and −log p2, as one tensor (3, N), zero at ignored positions; and the
    gradients of the sum of the losses with respect to H, W and U, None where not wanted."""
    wide = working_dtype(features)
    starts = order.on_host.read().tolist()  # a GPU is waited for, unless the numbers have arrived
    kept = order.positions[: starts[-1]]  # n <= N
    # Without products of half precision that are summed in float32, the rounded numbers are
    # multiplied in float32.
    operand = dtype if sums_in_float32(dtype, features.device) else wide
    h = features.index_select(0, kept).to(dtype).to(operand)  # n x D
    w = weight.to(dtype).to(operand)
    log_p1, log_p2 = features.new_zeros(2, len(kept), dtype=wide)  # n, at the targets
    grad_h = torch.zeros_like(h, dtype=wide) if wanted[0] else None  # n x D
    grad_weight = torch.zeros_like(weight, dtype=wide) if wanted[1] else None  # V x D
    grad_class_weight = torch.zeros_like(class_weight, dtype=wide) if wanted[2] else None  # C x D

    # Of the target distribution Q each token has `share`, and the target `at_target` more.
    share, at_target = label_smoothing / classes.vocabulary, 1 - label_smoothing
    rest = torch.zeros_like(log_p1) if share else None  # n, the loss of the shares

    # All in float32, since each row of U is a sum over many positions.
    of_class = order.of_class[: len(kept)].long()
    shares = None if rest is None else Shares(share * classes.sizes.to(wide), rest)
    _add_term(
        h.to(wide), class_weight.to(wide), classes.number, of_class, log_p1, at_target, shares, None,
        grad_h, grad_class_weight,
    )  # fmt: skip
    for first, last, spans in _groups(starts, classes, bool(share), features.is_cuda):
        tokens = classes.tokens(first, last)
        rows = aligned(w[tokens])  # M x D, or a few more
        number = classes.starts[last + 1] - classes.starts[first]  # M
        into_rows, is_view = None, isinstance(tokens, slice) and len(rows) == number
        if grad_weight is not None:
            into_rows = grad_weight[tokens] if is_view else torch.zeros_like(rows, dtype=wide)
        for start, stop, is_own in spans:
            span = slice(start, stop)
            y = order.ranks[span] - classes.starts[first] if is_own else None
            masks = None if first == last else (of_class[span, None], classes.of_token[tokens])
            _add_term(
                h[span], rows, number, y, log_p2[span], at_target,
                None if rest is None else Shares(share, rest[span]), masks,
                None if grad_h is None else grad_h[span], into_rows,
            )  # fmt: skip
        if grad_weight is not None and into_rows is not None and not is_view:
            grad_weight[tokens] = into_rows[:number]

    grad_features = None
    if grad_h is not None:
        grad_features = torch.zeros_like(features, dtype=wide).index_copy_(0, kept, grad_h)
    losses = -at_target * (log_p1 + log_p2) + (0 if rest is None else rest)
    values = torch.stack([losses, -log_p1, -log_p2])
    values = values.new_zeros(3, len(features)).index_copy_(1, kept, values)
    return values, [grad_features, grad_weight, grad_class_weight]


Span = tuple[int, int, bool]
"""The first sorted position, the last one + 1, and whether their targets are in the class."""


def _groups(
    starts: list[int], classes: TokenClasses, smoothing: bool, is_cuda: bool
) -> list[tuple[int, int, list[Span]]]:
    """The first and the last class of each product over rows of W, and the positions that it takes.

    Merging a group of n positions and M tokens with a class of n' and M' adds n·M' + n'·M logits.
    With label smoothing, no classes are merged, and each takes all positions. What has one token is
    left out, since p2 is 1 there whatever the logit, and so is what has no position.
    """
    most = GPU_MERGED_LOGITS if is_cuda else MERGED_LOGITS
    groups: list[tuple[int, int, list[Span]]] = []
    first = 0
    for last in range(classes.number):
        start, stop = starts[first], starts[last + 1]
        size = classes.starts[last + 1] - classes.starts[first]
        if last + 1 < classes.number and not smoothing:
            more_positions = starts[last + 2] - stop
            more_tokens = classes.starts[last + 2] - classes.starts[last + 1]
            if (stop - start) * more_tokens + more_positions * size <= most:
                continue
        spans = [(start, stop, True)]
        if smoothing:
            spans += [(0, start, False), (stop, starts[-1], False)]
        spans = [span for span in spans if span[0] < span[1]]
        if size > 1 and spans:
            groups.append((first, last, spans))
        first = last + 1
    return groups


class Shares(NamedTuple):
    """The part of Q that label smoothing gives to every row, and its loss."""

    of_rows: Tensor | float  # one number, or (M,)
    loss: Tensor  # (n,), to which −Σ of_rows · log p is added


def _add_term(
    h: Tensor,
    rows: Tensor,
    number: int,
    y: Tensor | None,
    log_p: Tensor,
    at_target: float,
    shares: Shares | None,
    masks: tuple[Tensor, Tensor] | None,
    grad_h: Tensor | None,
    grad_rows: Tensor | None,
) -> None:
    """A softmax over M rows (M, D) for n positions h (n, D), added to what follows its options.

    `number` is M; `rows` may have a few more, of zeros (`aligned`).

    Q is `at_target` at the row y (n,) of the target, and with label smoothing the share of the row
    more at every row; then y may be None. So its sum ω may be less than 1.

    Args:
        log_p: (n,), which becomes log p at the target.
        masks: the class of each position (n, 1) and of each row (M,), where only rows of the
            position's class compete.
        grad_h: (n, D), to which the gradient is added, None if it is not wanted.
        grad_rows: (M, D), the same.
    """
    dtype, wide, terms = h.dtype, log_p.dtype, Terms(number)
    scale = float(terms.residual_scale(dtype))  # no tensor, without position weights
    step = chunk_rows(rows)
    for start in range(0, len(h), step):
        part = slice(start, start + step)
        features, target = h[part], None if y is None else y[part]
        logits = h.new_empty(len(features), len(rows), dtype=wide)
        product(features, rows.t(), out=logits)
        if masks is not None:
            logits[:, :number].masked_fill_(masks[0][part] != masks[1], -torch.inf)
        if shares is not None:
            share = shares.of_rows
            logits[:, number:].fill_(-torch.inf)
            log_probs = torch.log_softmax(logits, 1, out=logits)
            shares.loss[part] -= (log_probs[:, :number] * share).sum(1)
            omega = share.sum() if isinstance(share, Tensor) else share * number
            if target is None:
                residual = log_probs.exp_().mul_(omega)
            else:
                at_y = log_probs.gather(1, target[:, None])  # n x 1
                log_p[part] = at_y.squeeze(1)
                residual = log_probs.exp_().mul_(omega + at_target)
                residual.scatter_add_(1, target[:, None], torch.full_like(at_y, -at_target))
            residual[:, :number].sub_(share)
            residual = residual.mul_(scale).to(dtype)
        elif target is not None:
            residual, values = likelihood_residual(logits, target, None, terms, dtype)
            torch.neg(values.nll, out=log_p[part])
        if grad_h is not None:
            add_product_(grad_h[part], residual, rows, 1 / scale)
        if grad_rows is not None:
            add_product_(grad_rows, residual.t(), features, 1 / scale)


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
            if part.is_cuda:  # which takes as long to launch dozens of operations
                shift = log_p1_of_part - classes.reduce(part, torch.logsumexp, -torch.inf)  # n x C
                part.add_(shift.index_select(1, classes.of_token))
                continue
            ranked = part.index_select(1, classes.order)  # class by class
            for number, (start, stop) in enumerate(pairwise(classes.starts)):
                of_class = ranked[:, start:stop]
                log_p1_of_class = log_p1_of_part[:, number, None]
                torch.add(of_class.log_softmax(1), log_p1_of_class, out=of_class)
            torch.index_select(ranked, 1, classes.rank, out=part)
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
        of_token, rows = ctx.classes.of_token, _rows_at_a_time(joint)
        grad_logits, sums = torch.empty_like(gradient), torch.empty_like(log_p1)
        for start in range(0, len(joint), rows):
            part = slice(start, start + rows)
            sums[part] = ctx.classes.reduce(gradient[part], torch.sum, 0.0)
            p2 = (joint[part] - log_p1[part].index_select(1, of_token)).exp_()
            of_class = sums[part].index_select(1, of_token)
            torch.addcmul(gradient[part], p2, of_class, value=-1, out=grad_logits[part])
        return grad_logits, sums, None


def _rows_at_a_time(logits: Tensor) -> int:
    """The rows of (N, V) that are normalized at a time, at least one."""
    return max(1, (GPU_ELEMENTS if logits.is_cuda else CACHED_ELEMENTS) // logits.size(1))


def linear(features: Tensor, weight: Tensor) -> Tensor:
    """H Wᵀ in the wider dtype of the two."""
    dtype = torch.promote_types(features.dtype, weight.dtype)
    return F.linear(features.to(dtype), weight.to(dtype))
