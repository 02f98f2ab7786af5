"""The frequency-factorized softmax: the class of the next token, then the token inside its class.

    log p(k | h) = log p1(c(k) | h) + log p2(k | c(k), h)                                      (Eqs. 2 and 4)
    p1 = softmax over the C classes of H Uᵀ        p2 = softmax over the tokens of one class of H Wᵀ

with U (C, D) and W (V, D). In training `p2` is needed only inside the target's class: position i
costs `C + |class of y_i|` products of length D instead of V. With label smoothing every token has
some of the target distribution, so the cost is that of the full softmax.

Each term is the likelihood of a linear layer, by `functional.chunked`: over U at all positions, and
over the rows of each class at the positions whose targets it has. With label smoothing it is a loss
of the logits of [W; U].
"""

from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..functional import SmoothedLikelihood, chunked
from ..functional.chunks import Chunk, Loss, Values, working_dtype
from ..functional.gated_linear import refuse_second_derivatives
from ..functional.losses import check_weights
from .token_classes import SortedTargets, TokenClasses, check_classes, joined

CACHED_ELEMENTS = 2**21
"""Logits that `joint_log_prob` normalizes at a time: 8 MiB in float32, which a processor's cache
can hold."""
GPU_ELEMENTS = 2**27
"""The same on a GPU, where launches count."""
MERGED_LOGITS = {"cpu": 0, "cuda": 2**24}
"""Logits that take as long as the launches for one more class, by type of device."""


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
        return FactorizedOutput(loss, values["class_nll"] + values["token_nll"], **values)
    order = classes.sort(target, ignore_index) if sorted_targets is None else sorted_targets
    starts = order.starts.read().tolist()  # a GPU is waited for, unless the numbers have arrived
    kept = order.positions[: starts[-1]]  # n <= N
    h = features.reshape(-1, features.size(-1)).index_select(0, kept)
    target_class = classes.class_ids.index_select(0, target.reshape(-1).index_select(0, kept))
    wide = working_dtype(h)  # for the classes, since each row of U is a sum over many positions
    with torch.autocast(h.device.type, enabled=False):
        layer = h.to(wide), class_weight.to(wide)
        loss, values = chunked(SmoothedLikelihood(), *layer, target_class)
    parts: list[Tensor] = []  # −log p2
    groups = _neighbors(starts, classes.starts, MERGED_LOGITS.get(h.device.type, 0))
    numbers = [starts[stop] - starts[first] for first, stop in groups]
    rows, class_starts = classes.split(weight, 0), classes.edges.long()
    by_group = zip(
        groups,
        *(one.split(numbers) for one in (h, order.ranks[: len(kept)], target_class)),
        strict=True,
    )
    for (first, stop), features, rank, class_ids in by_group:
        shift = classes.starts[first]
        inside: Loss = SmoothedLikelihood()
        if stop - first > 1:
            inside = partial(inside_class, starts=class_starts - shift, class_ids=class_ids)
        token_loss, token_values = chunked(inside, features, joined(rows[first:stop]), rank - shift)
        loss = loss + token_loss
        parts.append(token_values["losses"])
    both = torch.stack([values["nll"], torch.cat(parts)])
    both = both.new_zeros(2, target.numel()).index_copy_(1, kept, both)
    class_nll, token_nll = both.view(2, *target.shape)
    losses = class_nll + token_nll
    return FactorizedOutput(loss, losses, losses, class_nll, token_nll)


def inside_class(logits: Tensor, chunk: Chunk, *, starts: Tensor, class_ids: Tensor) -> Values:
    """−log p2 of the targets (n,), from logits (n, M) of the tokens of several classes.

    Args:
        starts: (C + 1,) int64, the column where each class begins.
        class_ids: those of the targets at all positions.
    """
    column = torch.arange(logits.size(1), device=logits.device)
    found = class_ids[chunk.positions]
    first, stop = starts[found, None], starts[found + 1, None]
    z = logits.masked_fill((column < first) | (column >= stop), -torch.inf)
    return {"losses": F.cross_entropy(z, chunk.target, reduction="none")}


def _neighbors(positions: list[int], tokens: tuple[int, ...], most: int) -> list[tuple[int, int]]:
    """The first class, and the last (excluded), of each product: neighbors are in one product if it
    has no more than `most` logits in vain.

    Args:
        positions: C + 1 numbers, where those of each class begin.
        tokens: the same of the tokens.
    """
    groups, first = [], 0
    for last in range(1, len(tokens)):
        if last + 1 < len(tokens):
            more = (positions[last] - positions[first]) * (tokens[last + 1] - tokens[last])
            more += (positions[last + 1] - positions[last]) * (tokens[last] - tokens[first])
            if more <= most:
                continue
        groups.append((first, last))
        first = last
    return groups


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
        classes, rows = ctx.classes, _rows_at_a_time(joint)
        grad_logits, sums = torch.empty_like(gradient), torch.empty_like(log_p1)
        for start in range(0, len(joint), rows):
            part = slice(start, start + rows)
            sums[part] = classes.reduce(gradient[part], torch.sum, 0.0)
            p2 = (joint[part] - classes.spread(log_p1[part])).exp_()
            class_sums = classes.spread(sums[part])
            torch.addcmul(gradient[part], p2, class_sums, value=-1, out=grad_logits[part])
        return grad_logits, sums, None


def _rows_at_a_time(logits: Tensor) -> int:
    """The rows of (N, V) that are normalized at a time, at least one."""
    return max(1, (GPU_ELEMENTS if logits.is_cuda else CACHED_ELEMENTS) // logits.size(1))


def linear(features: Tensor, weight: Tensor) -> Tensor:
    """H Wᵀ in the wider dtype of the two."""
    dtype = torch.promote_types(features.dtype, weight.dtype)
    return F.linear(features.to(dtype), weight.to(dtype))
