"""The frequency-factorized softmax: the class of the next token, then the token inside its class.

    log p(k | h) = log p1(c(k) | h) + log p2(k | c(k), h)                                      (Eqs. 2 and 4)
    p1 = softmax over the C classes of H Uᵀ        p2 = softmax over the tokens of one class of H Wᵀ

with U (C, D) and W (V, D). In training `p2` is needed only inside the target's class: position i
costs `C + |class of y_i|` products of length D instead of V. Where MefMax gives every class the
same mass, that is V/C in the mean over positions. With label smoothing every token has some of the
target distribution, so every class is needed and the cost is that of the full softmax.

The class term is a plain softmax over (N, C). The token term runs through the same loop as
`gated_cross_entropy`, class by class over the positions whose target is in the class, with its
gradients formed on the way: beyond inputs and gradients it holds one chunk of logits, and the rows
of one class.
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..functional.early_gradients import (
    refuse_second_derivatives,
    wants_gradient,
    with_gradients,
    working_dtype,
)
from ..functional.gated_cross_entropy import (
    PositionOrder,
    check_arguments,
    values_and_gradients,
)
from .token_classes import Block, TokenClasses, check_classes

CACHED_ELEMENTS = 2**21
"""Logits that `joint_log_prob` normalizes at a time: 8 MiB in float32, which a processor's cache
can hold."""


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
) -> FactorizedOutput:
    """The negative log-likelihood of the factorized softmax; ValueError for shapes that do not fit.

    Equal in value and gradient to `F.nll_loss` of `joint_log_prob`, summed, without the logits of
    any class but the target's. `backward` may run once, since the graph holds the gradients
    themselves.

    Args:
        features: (..., D) H, floating point.
        weight: (V, D) W, the output embedding of the tokens (o in the paper).
        class_weight: (C, D) U, the output embedding of the classes (u in the paper).
        target: (...) y, int64 in [0, V), or `ignore_index`.
        classes: the class of each token.
        label_smoothing: ε in [0, 1), over the joint distribution: ε/(V−1) goes to every token but
            the target.
        ignore_index: target value of the positions that contribute nothing (padding).

    Examples:
        >>> H, W, U = torch.ones(1, 3), torch.zeros(4, 3), torch.zeros(2, 3, requires_grad=True)
        >>> classes = TokenClasses.of(torch.tensor([0, 1, 1, 1]))
        >>> out = factorized_cross_entropy(H, W, U, torch.tensor([3]), classes)
        >>> round(out.class_nll.item(), 4), round(out.token_nll.item(), 4)  # log 2, log 3
        (0.6931, 1.0986)

    Reference: Choi et al. (2020), "F²-Softmax: Diversifying Neural Text Generation via Frequency
    Factorized Softmax", Eqs. 2–4.
    """
    check_arguments(features, target, len(weight), label_smoothing, ignore_index)
    check_classes(weight, class_weight, classes)
    shape = target.shape
    features, target = features.reshape(-1, features.size(-1)), target.reshape(-1)
    # Half-precision features get the sum of both terms' gradients in float32, rounded once.
    wide = features.to(working_dtype(features))

    # The positions of each class, without the ignored ones, which are sorted behind the last class.
    # To learn how many there are is the only time that a GPU is waited for; `bincount` would wait
    # once more.
    ignored = target == ignore_index
    # N
    target_class = classes.of_token[target.masked_fill(ignored, 0)].masked_fill(
        ignored, classes.number
    )
    numbers = _class_sizes(target_class, classes.number + 1).tolist()
    rows_of_class = list(torch.argsort(target_class, stable=True).split(numbers))[: classes.number]
    rows = torch.cat(rows_of_class)  # n <= N

    # The class term. Of the target distribution Q a class holds `share` for each of its tokens, and
    # the target's class `at_target` more.
    share = label_smoothing / max(classes.vocabulary - 1, 1)
    at_target = 1 - label_smoothing - share
    log_p1 = class_log_prob(wide[rows], class_weight)  # n x C
    nll = -log_p1.gather(1, classes.of_token[target[rows]][:, None]).squeeze(1)  # n
    losses = nll
    if share:
        sizes = _class_sizes(classes.of_token, classes.number)  # C, tokens
        losses = at_target * nll - share * (log_p1 * sizes).sum(1)
    zeros = log_p1.new_zeros(len(target))
    class_nll, class_losses = zeros.index_add(0, rows, nll), zeros.index_add(0, rows, losses)

    # The token term. `wide` gets its gradient, while the products take the features as they came.
    inputs = (wide, weight)
    token_nll, token_losses, gradients = _token_term(
        features.detach(), weight.detach(), target, rows_of_class, classes, at_target, share,
        wanted=tuple(map(wants_gradient, inputs)),
    )  # fmt: skip
    token_loss = with_gradients(token_losses.sum(), inputs, gradients, (~ignored).sum())
    class_loss = class_losses.sum()
    class_nll, class_losses = class_nll.detach(), class_losses.detach()
    values = (class_nll + token_nll, class_losses + token_losses, class_nll, token_nll)
    return FactorizedOutput(class_loss + token_loss, *(value.view(shape) for value in values))


def _class_sizes(class_of: Tensor, classes: int) -> Tensor:
    """(C,) int64, from (n,) int64. Unlike `bincount`, it does not make the host wait for a GPU."""
    return class_of.new_zeros(classes).index_add_(0, class_of, torch.ones_like(class_of))


def class_log_prob(features: Tensor, class_weight: Tensor) -> Tensor:
    """log p1, (..., C), in float32 (float64 for float64 features)."""
    dtype = working_dtype(features)
    with torch.autocast(features.device.type, enabled=False):
        return F.log_softmax(F.linear(features.to(dtype), class_weight.to(dtype)), dim=-1)


@torch.no_grad()
def _token_term(
    features: Tensor,
    weight: Tensor,
    target: Tensor,
    rows_of_class: list[Tensor],
    classes: TokenClasses,
    at_target: float,
    share: float,
    *,
    wanted: tuple[bool, bool],
) -> tuple[Tensor, Tensor, list[Tensor | None]]:
    """−log p2, class by class, of H (N, D), W (V, D) and y (N,).

    Returns the NLL (N,), the summands of the loss (N,) and the gradients of their sum, in the dtype
    of the sums. `at_target` is what the target's entry of Q has beyond the others, and `share` that
    of every token.
    """
    dtype = working_dtype(features)
    nll = features.new_zeros(len(features), dtype=dtype)  # N
    losses = torch.zeros_like(nll)  # N
    grad_features = torch.zeros_like(features, dtype=dtype) if wanted[0] else None  # N x D
    grad_weight = torch.zeros_like(weight, dtype=dtype) if wanted[1] else None  # V x D

    def run_class(
        number: int, of_class: Tensor, rows: Tensor, target: Tensor, at_target: float
    ) -> Tensor:
        """Adds the positions `rows` (n,) in one class, with its rows of W; returns −log p2 of
        `target`, (n,).

        Inside the class Q sums to ω = at_target + share·size. So the loss is ω times a
        cross-entropy whose label smoothing leaves share/ω to each token.
        """
        omega = at_target + share * len(of_class)
        everything, number_of_rows = torch.arange(len(rows), device=rows.device), len(rows)
        order = PositionOrder(everything, None, torch.tensor([number_of_rows] * 2))
        values, (into_features, into_weight, _) = values_and_gradients(
            features[rows],
            of_class,
            None,
            target,
            order,
            wanted=(*wanted, False),
            label_smoothing=share / omega * (len(of_class) - 1),
        )
        losses.index_add_(0, rows, values["losses"], alpha=omega)
        if grad_features is not None:
            grad_features.index_add_(0, rows, into_features, alpha=omega)
        start = 0
        for block in classes.blocks[number] if grad_weight is not None else ():
            length = block.stop - block.start if isinstance(block, slice) else len(block)
            gradient, start = into_weight[start : start + length], start + length
            if isinstance(block, slice):
                grad_weight[block].add_(gradient, alpha=omega)
            else:
                grad_weight.index_add_(0, block, gradient, alpha=omega)
        return values["nll"]

    # The positions of each class that has any; with smoothing, every position in every class.
    kept = sum(map(len, rows_of_class))
    for number, rows in enumerate(rows_of_class):
        if classes.sizes[number] == 1:  # p2 is 1, whatever the logit
            continue
        of_class = classes.rows(weight, number)  # size x D
        if len(rows):
            nll[rows] = run_class(number, of_class, rows, classes.position[target[rows]], at_target)
        if share and len(rows) < kept:
            others = torch.cat([other for i, other in enumerate(rows_of_class) if i != number])
            # these positions have no target in the class: at_target is 0
            anywhere = torch.zeros_like(others)
            run_class(number, of_class, others, anywhere, 0.0)
    return nll, losses, [grad_features, grad_weight]


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
        rows = max(1, CACHED_ELEMENTS // classes.vocabulary)
        for part, log_p1_of_part in zip(logits.split(rows), log_p1.split(rows), strict=True):
            for number, blocks in enumerate(classes.blocks):
                shift = (log_p1_of_part[:, number] - log_sum_exp(part, blocks))[:, None]  # n x 1
                for block in blocks:
                    if isinstance(block, slice):
                        part[:, block].add_(shift)
                    else:
                        part[:, block] += shift  # the columns are copied
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
        grad_logits, grad_log_p1 = torch.empty_like(gradient), torch.empty_like(log_p1)
        for number, blocks in enumerate(ctx.classes.blocks):
            total = sum(gradient[:, block].sum(1) for block in blocks)  # N
            grad_log_p1[:, number] = total
            for block in blocks:
                p2 = (joint[:, block] - log_p1[:, number, None]).exp_()
                grad_logits[:, block] = torch.addcmul(
                    gradient[:, block], p2, total[:, None], value=-1
                )
        return grad_logits, grad_log_p1, None


def linear(features: Tensor, weight: Tensor) -> Tensor:
    """H Wᵀ in the wider dtype of the two."""
    dtype = torch.promote_types(features.dtype, weight.dtype)
    return F.linear(features.to(dtype), weight.to(dtype))


def log_sum_exp(logits: Tensor, blocks: tuple[Block, ...]) -> Tensor:
    """The log-sum-exp (N,) of logits (N, V) over the columns of one class."""
    sums = [torch.logsumexp(logits[:, block], 1) for block in blocks]
    return sums[0] if len(sums) == 1 else torch.logsumexp(torch.stack(sums, 1), 1)
