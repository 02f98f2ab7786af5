"""The frequency-factorised softmax: the class of the next token, then the token inside its class.

    log p(k | h) = log p1(c(k) | h) + log p2(k | c(k), h)                                      (Eqs. 2 and 4)
    p1 = softmax over the C classes of H Uᵀ        p2 = softmax over the tokens of one class of H Wᵀ

With U (C, D) and W (V, D). In training `p2` is needed only inside the target's class: position i costs
`C + |class of y_i|` products of length D instead of V. Where MefMax gives every class the same mass, that is V/C in
the mean over positions. With label smoothing every token carries some of the target distribution, so every class is
visited and the cost is that of the full softmax.

The class's part is a plain softmax of (N, C). The tokens' part runs through the chunked operation of
`gated_cross_entropy`, class by class over the positions whose target is in it, with its gradients formed on the way:
beyond inputs and gradients it holds one chunk of logits, and the rows of one class.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from . import kernels
from .checks import check_arguments, check_classes
from .kernels.chunked import Options, Wanted, scaled_gradients, wants_gradient, working_dtype
from .token_classes import Block, TokenClasses

CACHED_ELEMENTS = 2**21
"""Logits normalised at a time: 8 MiB in float32, which a processor's cache can hold."""
LEAST_MASS = 1e-25
"""Of a class, beside the likeliest token's 1; well above where float32 gets coarse."""


class FactorizedOutput(NamedTuple):
    """What `factorized_cross_entropy` returns; everything in nats, zero at ignored positions."""

    loss: Tensor
    """Scalar, summed over positions; the only field that carries a gradient."""
    nll: Tensor
    """Like `target`: −log p(y_i), the sum of the two that follow."""
    terms: Tensor
    """Like `target`: the summands of `loss`; equal to `nll` without label smoothing."""
    class_nll: Tensor
    """Like `target`: −log p1 of the target's class."""
    token_nll: Tensor
    """Like `target`: −log p2 of the target inside its class."""


def factorized_cross_entropy(
    features: Tensor,
    weight: Tensor,
    class_weight: Tensor,
    target: Tensor,
    classes: TokenClasses,
    *,
    label_smoothing: float = 0.0,
    ignore_index: int = -100,
    chunk_elements: int | None = None,
) -> FactorizedOutput:
    """The negative log-likelihood of the factorised softmax.

    In value and gradient the same as

        log_probs = joint_log_prob(features, weight, class_weight, classes)
        loss = F.nll_loss(log_probs.flatten(0, -2), target.flatten(), ignore_index=ignore_index, reduction="sum")

    without the logits of any class but the target's. `backward` may run once: the gradients live in the graph.

    Args:
        features: (..., D) H, floating point.
        weight: (V, D) W, the output embedding of the tokens (o in the paper).
        class_weight: (C, D) U, the output embedding of the classes (u in the paper).
        target: (...) y, int64 in [0, V), or `ignore_index`.
        classes: the class of each token.
        label_smoothing: ε in [0, 1), over the joint distribution: ε/(V−1) goes to every token but the target.
        ignore_index: target value of the positions that contribute nothing (padding).
        chunk_elements: token logits held at a time, at least one row of a class; None as in `gated_cross_entropy`.

    Returns:
        FactorizedOutput: the loss, and its summands per position.

    Raises:
        ValueError: a shape, a range or a size does not fit.
        TypeError: `target` is not int64, or `features` not floating point.

    Example:
        >>> H, W, U = torch.ones(1, 3), torch.zeros(4, 3), torch.zeros(2, 3, requires_grad=True)
        >>> classes = TokenClasses.of(torch.tensor([0, 1, 1, 1]))
        >>> out = factorized_cross_entropy(H, W, U, torch.tensor([3]), classes)
        >>> round(out.class_nll.item(), 4), round(out.token_nll.item(), 4)  # log 2, log 3
        (0.6931, 1.0986)

    Reference: Choi et al. (2020), "F²-Softmax: Diversifying Neural Text Generation via Frequency Factorized
    Softmax", Eqs. 2–4.
    """
    check_arguments("factorized_cross_entropy", features, weight, target, label_smoothing, ignore_index)
    check_classes(weight, class_weight, classes)
    shape = target.shape
    features, target = features.reshape(-1, features.size(-1)), target.reshape(-1)
    share = label_smoothing / max(classes.vocabulary - 1, 1)  # of the target distribution, to every token
    smoothing = Smoothing(1 - label_smoothing - share, share)
    rows_of_class = _by_class(target, classes, ignore_index)
    kept = torch.cat(rows_of_class)  # n <= N
    class_nll, class_terms = _class_part(features, class_weight, target, kept, classes, smoothing)
    wanted = (wants_gradient(features), wants_gradient(weight))
    token_loss, token_nll, token_terms = _TokenPart.apply(
        features, weight, target, rows_of_class, classes, smoothing, wanted, chunk_elements
    )
    loss = class_terms.sum() + token_loss
    class_nll, class_terms = class_nll.detach(), class_terms.detach()
    values = (class_nll + token_nll, class_terms + token_terms, class_nll, token_nll)
    return FactorizedOutput(loss, *(value.view(shape) for value in values))


class Smoothing(NamedTuple):
    """Q: `share` at every token, and `at_target` more at the target."""

    at_target: float
    share: float


def _by_class(target: Tensor, classes: TokenClasses, ignore_index: int) -> list[Tensor]:
    """The positions of each class, without the ignored ones: the only wait for a device, which has to count them."""
    target_class = classes.of_token[target.masked_fill(target == ignore_index, 0)]  # N
    target_class = target_class.masked_fill(target == ignore_index, classes.number)
    numbers = _sizes(target_class, classes.number + 1).tolist()
    return list(torch.argsort(target_class, stable=True).split(numbers))[: classes.number]


def _sizes(class_of: Tensor, classes: int) -> Tensor:
    """How many of (n,) are in each class: (C,) int64. As `bincount` has it, which waits for a device by itself."""
    return class_of.new_zeros(classes).index_add_(0, class_of, torch.ones_like(class_of))


def _class_part(
    features: Tensor, class_weight: Tensor, target: Tensor, kept: Tensor, classes: TokenClasses, smoothing: Smoothing
) -> tuple[Tensor, Tensor]:
    """−log p1 of each target's class, and its share of the loss, each (N,) and differentiable.

    A class holds `share` for each of its tokens, the target's class `at_target` more. `kept` (n,) are the positions
    that count.
    """
    log_probs = class_log_prob(features[kept], class_weight)  # n x C
    nll = -log_probs.gather(1, classes.of_token[target[kept]][:, None]).squeeze(1)  # n
    terms = nll
    if smoothing.share:
        sizes = _sizes(classes.of_token, classes.number)  # C, tokens
        terms = smoothing.at_target * nll - smoothing.share * (log_probs * sizes).sum(1)
    zeros = log_probs.new_zeros(len(target))
    return zeros.index_add(0, kept, nll), zeros.index_add(0, kept, terms)


def class_log_prob(features: Tensor, class_weight: Tensor) -> Tensor:
    """log p1, (..., C), in float32 (float64 for float64 features)."""
    dtype = working_dtype(features)
    with torch.autocast(features.device.type, enabled=False):
        return F.log_softmax(F.linear(features.to(dtype), class_weight.to(dtype)), dim=-1)


class _TokenPart(torch.autograd.Function):
    """−log p2, class by class; the gradients are formed in the forward pass and scaled in the backward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        weight: Tensor,
        target: Tensor,
        rows_of_class: list[Tensor],
        classes: TokenClasses,
        smoothing: Smoothing,
        wanted: tuple[bool, bool],
        chunk_elements: int | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Of H (N, D), W (V, D) and y (N,): the loss, the NLL (N,) and the summands of the loss (N,)."""
        work = _ClassByClass(features, weight, classes, wanted, chunk_elements)
        work.run(target, rows_of_class, smoothing)
        ctx.gradients = work.gradients()
        ctx.mark_non_differentiable(work.nll, work.terms)
        return work.terms.sum(), work.nll, work.terms

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_loss: Tensor, *unused: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of H (N, D) and W (V, D) times `grad_loss`; may run once."""
        return (*scaled_gradients(ctx, grad_loss, "factorized_cross_entropy"), *[None] * 6)


class _ClassByClass:
    """One forward pass of the tokens' part: outputs and gradients, filled class by class."""

    def __init__(
        self,
        features: Tensor,
        weight: Tensor,
        classes: TokenClasses,
        wanted: tuple[bool, bool],
        chunk_elements: int | None,
    ) -> None:
        dtype = working_dtype(features)
        self.features, self.weight, self.classes, self.chunk_elements = features, weight, classes, chunk_elements
        self.nll = features.new_zeros(len(features), dtype=dtype)  # N
        self.terms = torch.zeros_like(self.nll)  # N
        self.grad_features = torch.zeros_like(features, dtype=dtype) if wanted[0] else None  # N x D
        self.grad_weight = torch.zeros_like(weight, dtype=dtype) if wanted[1] else None  # V x D

    def run(self, target: Tensor, rows_of_class: list[Tensor], smoothing: Smoothing) -> None:
        """The positions of each class that has any; with smoothing, every one of them in every class."""
        kept = sum(map(len, rows_of_class))
        for number, rows in enumerate(rows_of_class):
            size = self.classes.sizes[number]
            if size == 1:  # p2 is 1, whatever the logit
                continue
            weight = self.classes.rows(self.weight.detach(), number)  # size x D
            if len(rows):
                self.nll[rows] = self._run(number, weight, rows, self.classes.place[target[rows]], smoothing)
            if smoothing.share and len(rows) < kept:
                others = torch.cat([other for i, other in enumerate(rows_of_class) if i != number])
                anywhere = torch.zeros_like(others)  # no mass is at "the target" of these
                self._run(number, weight, others, anywhere, Smoothing(0.0, smoothing.share))

    def _run(self, number: int, weight: Tensor, rows: Tensor, place: Tensor, smoothing: Smoothing) -> Tensor:
        """Some positions in one class; returns −log p2 at `place`, (n,).

        The class's part of Q sums to ω = at_target + share·size, so that the loss is ω times a cross-entropy whose
        label smoothing leaves share/ω to each token.
        """
        size = len(weight)
        omega = smoothing.at_target + smoothing.share * size
        options = Options(
            gates=None,
            label_smoothing=smoothing.share / omega * (size - 1),
            position_weight=self.terms.new_full((len(rows),), omega) if smoothing.share else None,
            unlikelihood=None,
            ignore_index=-1,
            chunk_elements=self.chunk_elements,
            predict=False,
        )
        wanted = Wanted(self.grad_features is not None, self.grad_weight is not None, False)
        part = kernels.select(self.features, options).start(self.features[rows], weight, None, place, options, wanted)
        part.run()
        self.terms[rows] += part.outputs.terms
        if self.grad_features is not None:
            self.grad_features[rows] += part.grad_features
        if self.grad_weight is not None:
            self._add_to_weight(number, part.grad_weight)
        return part.outputs.nll

    def gradients(self) -> list[tuple[Tensor, torch.dtype] | None]:
        """The gradients of features and weight, each with the dtype it is wanted in."""
        pairs = ((self.grad_features, self.features), (self.grad_weight, self.weight))
        return [None if gradient is None else (gradient, wanted.dtype) for gradient, wanted in pairs]

    def _add_to_weight(self, number: int, gradient: Tensor) -> None:
        start = 0
        for block in self.classes.blocks[number]:
            size = block.stop - block.start if isinstance(block, slice) else len(block)
            part, start = gradient[start : start + size], start + size
            if isinstance(block, slice):
                self.grad_weight[block].add_(part)
            else:
                self.grad_weight.index_add_(0, block, part)


def joint_log_prob(features: Tensor, weight: Tensor, class_weight: Tensor, classes: TokenClasses) -> Tensor:
    """log p of every token: `log p1 + log p2`, normalised over the vocabulary.

    Args: as those of `factorized_cross_entropy`.

    Returns:
        (..., V), in float32 (float64 for float64 features); differentiable.

    Raises:
        ValueError: a size does not fit.

    Cost: that of a softmax over V, with one more pass over the logits. The logits are formed in the wider dtype of
    features and weight, as an output layer of that dtype forms them, and normalised in float32.
    """
    check_classes(weight, class_weight, classes)
    shape = (*features.shape[:-1], classes.vocabulary)
    features = features.reshape(-1, features.size(-1))
    log_p1 = class_log_prob(features, class_weight)  # N x C
    logits = linear(features, weight).to(log_p1.dtype)  # N x V
    return _JointLogProb.apply(logits, log_p1, classes).view(shape)


class _JointLogProb(torch.autograd.Function):
    """Normalises the logits inside each class and adds log p1, in the memory of the logits."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, log_p1: Tensor, classes: TokenClasses) -> Tensor:
        """Of (N, V) and (N, C): (N, V)."""
        rows = max(1, CACHED_ELEMENTS // classes.vocabulary)
        for part, log_p1_of_part in zip(logits.split(rows), log_p1.split(rows), strict=True):
            shifts = (log_p1_of_part - _normalizers(part, classes)).split(1, 1)  # C times n x 1
            for blocks, shift in zip(classes.blocks, shifts, strict=True):
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
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        """With g the gradient (N, V) and s its sum over a class: `g − p2·s` for the logits, and s for log p1."""
        joint, log_p1 = ctx.saved_tensors
        grad_logits, grad_log_p1 = torch.empty_like(gradient), torch.empty_like(log_p1)
        for number, blocks in enumerate(ctx.classes.blocks):
            total = sum(gradient[:, block].sum(1) for block in blocks)  # N
            grad_log_p1[:, number] = total
            for block in blocks:
                p2 = (joint[:, block] - log_p1[:, number, None]).exp_()
                grad_logits[:, block] = torch.addcmul(gradient[:, block], p2, total[:, None], value=-1)
        return grad_logits, grad_log_p1, None


def _normalizers(logits: Tensor, classes: TokenClasses) -> Tensor:
    """The log-sum-exp of each class: (n, V) to (n, C).

    With one exponential of all logits below their largest; a class so far below it that float32 loses it has its own.
    """
    largest = logits.amax(1, keepdim=True)  # n x 1
    mass = torch.sub(logits, largest).exp_()  # n x V
    sums = torch.stack([sum(mass[:, block].sum(1) for block in blocks) for blocks in classes.blocks], 1)  # n x C
    if sums.numel() and sums.amin() > LEAST_MASS:
        return sums.log_().add_(largest)
    return torch.stack([log_sum_exp(logits, blocks) for blocks in classes.blocks], 1)


def linear(features: Tensor, weight: Tensor) -> Tensor:
    """H Wᵀ in the wider dtype of the two."""
    dtype = torch.promote_types(features.dtype, weight.dtype)
    return F.linear(features.to(dtype), weight.to(dtype))


def log_sum_exp(logits: Tensor, blocks: tuple[Block, ...]) -> Tensor:
    """Over the columns of one class: (N,)."""
    sums = [torch.logsumexp(logits[:, block], 1) for block in blocks]
    return sums[0] if len(sums) == 1 else torch.logsumexp(torch.stack(sums, 1), 1)
