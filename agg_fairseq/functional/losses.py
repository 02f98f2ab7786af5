"""Losses as functions of logits: what follows a linear layer, in `chunked` or alone.

With logits z (C, V), targets y (C,), and P = softmax(z).
"""

import math
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from . import softmax_kernel
from .chunks import Chunk, Values
from .gated_linear import Rows


def label_smoothed_nll(
    logits: Tensor, target: Tensor, label_smoothing: float = 0.0
) -> tuple[Tensor, Tensor]:
    """−Σ_k Q[k] log P[k], with Q of ε/V for each token and 1 − ε more for the target; and
    −log P[y]. Both (C,), in nats.

    Reference: label smoothing as torch's `F.cross_entropy`; Szegedy et al. (2016), Sec. 7.
    """
    log_p = logits.log_softmax(1)
    nll = -log_p.gather(1, target[:, None]).squeeze(1)
    if not label_smoothing:
        return nll, nll
    return smoothed(nll, -log_p.sum(1), logits.size(1), label_smoothing), nll


def smoothed(nll: Tensor, total: Tensor, vocabulary: int, label_smoothing: float) -> Tensor:
    """−Σ_k Q[k] log P[k], from −log P[y] and −Σ_k log P[k], (C,) each."""
    return (1 - label_smoothing) * nll + label_smoothing / vocabulary * total


def unlikelihood(logits: Tensor, tokens: Tensor, is_candidate: Tensor) -> Tensor:
    """−Σ_c log(1 − P[c]) over candidates c, (C,), in nats.

    Args:
        logits: (C, V).
        tokens: (C, U) int64, no token that is a candidate twice in a row.
        is_candidate: (C, U) bool.

    Reference: Welleck et al. (2020), Eq. 4.
    """
    p = (logits.gather(1, tokens) - logits.logsumexp(1, keepdim=True)).exp()
    return -rest_of_one(p).log().masked_fill(~is_candidate, 0.0).sum(1)


def rest_of_one(p: Tensor) -> Tensor:
    """1 − p, or where that rounds to 0 half of the least that it can be: a candidate that is certain
    costs 17.3 nats in float32. (The code of Welleck et al. has at least 1e-5.)"""
    return (1 - p).clamp(min=torch.finfo(p.dtype).eps / 4)


def adversarial_shift(features: Tensor, weight: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """δ (C, D), the vector of length ε ‖w_y‖ that lowers w_y·h the most, or 0 where w_y·h <= 0; and
    δ·h (C,), differentiable in h, by which adversarial training lowers the logits of the targets. δ
    is held fixed.

    Args:
        features: (C, D) H.
        weight: (C, D) w_y, the rows of the targets.
        epsilon: ε >= 0.

    Reference: Wang, Gong & Liu (2019), "Improving Neural Language Modeling via Adversarial
    Training", Eq. 7 and 8.
    """
    dtype = torch.promote_types(features.dtype, torch.float32)
    h, w = features.to(dtype), weight.detach().to(dtype)
    with torch.no_grad():
        direction = F.normalize(h, dim=1) * ((w * h).sum(1, keepdim=True) > 0)
        delta = -epsilon * torch.linalg.vector_norm(w, dim=1, keepdim=True) * direction
    return delta, (delta * h).sum(1)


def nll_without_margin(nll: Tensor, margin: Tensor) -> Tensor:
    """−log P[y] (C,), from −log P'[y] where δ·h = `margin` (C,) was added to the target's logit.

    With A the sum of exp z over the other tokens, −log P'[y] = softplus(log A − z[y] − δ·h), so
    that log A − z[y] − δ·h is −log P' + log(1 − P').
    """
    return F.softplus(nll + torch.log(-torch.expm1(-nll)) + margin).detach()


def check_weights(label_smoothing: float = 0.0, **weights: float) -> None:
    """Raises ValueError for an ε out of [0, 1], or a weight that is negative or not finite."""
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"expected label_smoothing in [0, 1], got {label_smoothing}")
    for name, weight in weights.items():
        if not 0 <= weight < math.inf:
            raise ValueError(f"expected {name} of at least 0, got {weight}")


@dataclass
class SmoothedLikelihood:
    """`label_smoothed_nll` of a chunk, weighted by position, with the gradient in the memory of the
    logits.

    Args:
        label_smoothing: ε in [0, 1].
        position_weight: ω (N,), of all positions; None is 1.
    """

    label_smoothing: float = 0.0
    position_weight: Tensor | None = None

    def __call__(self, logits: Tensor, chunk: Chunk) -> Values:
        """`losses`, the summands; and `nll`, −log P[y]."""
        losses, nll = label_smoothed_nll(logits, chunk.target, self.label_smoothing)
        if self.position_weight is not None:
            losses = losses * self.position_weight[chunk.positions]
        return {"losses": losses, "nll": nll}

    def value_and_grad_(
        self, logits: Tensor, chunk: Chunk, dtype: torch.dtype, scale: Tensor | float | None
    ) -> tuple[Values, Tensor, None]:
        """The same, and `scale · dL/dz = scale · ω (P − Q)` (C, V) in `dtype`, in the memory of the
        logits; of the rows of the chunk."""
        omega = factor = None
        if self.position_weight is not None:
            omega = factor = self.position_weight[chunk.positions].to(logits.dtype)
        if logits.is_cuda:  # elsewhere all positions have a target
            factor = torch.ones_like(logits[:, 0]) if omega is None else omega
            factor = factor.where(chunk.has_target, 0)
        if scale is not None:
            factor = (torch.ones_like(logits[:, 0]) if factor is None else factor) * scale
        grad_logits, nll, total = softmax_grad_(
            logits, chunk.target, factor, dtype, self.label_smoothing, chunk.rows
        )
        losses = nll
        if total is not None:
            vocabulary = logits.size(1) if chunk.rows is None else chunk.rows.vocabulary
            losses = smoothed(nll, total, vocabulary, self.label_smoothing)
        values = {"losses": losses if omega is None else losses * omega, "nll": nll}
        return values, grad_logits, None


def softmax_grad_(
    logits: Tensor,
    target: Tensor,
    omega: Tensor | None,
    dtype: torch.dtype,
    label_smoothing: float = 0.0,
    rows: Rows | None = None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """dL/dz = ω (P − Q) (C, V), in the memory of the logits z; −log P[y] (C,); and with label
    smoothing −Σ_k log P[k] (C,). If z is that of `rows` of W, so is the first; maxima and sums are
    those over all processes.
    """
    rows = rows or Rows(0, logits.size(1))
    share = label_smoothing / rows.vocabulary  # ε/V
    others = label_smoothing - share  # 1 − Q[y]
    if logits.is_cuda and rows.mesh is None and softmax_kernel.can_run(logits):
        arguments = logits, target, omega, share, others, dtype
        if (found := softmax_kernel.softmax_grad_(*arguments)) is not None:
            return found
    y = target - rows.first
    is_here = (y >= 0) & (y < logits.size(1))
    y = y.where(is_here, 0)[:, None]
    z_of_target, largest = logits.gather(1, y).squeeze(1), logits.amax(1)  # C
    total = logits.sum(1) if share else None  # C
    p = torch.softmax(logits, 1, out=logits)  # C x V
    # The largest probability is at least 1/V, so its logarithm is accurate. In
    # −log P[y] = (max z − z[y]) − log max P the logits cancel exactly where y is the arg-max.
    log_largest = p.amax(1).log_()  # C
    if rows.mesh is not None:
        group, largest_here = rows.mesh.get_group(), largest.clone()
        dist.all_reduce(largest, dist.ReduceOp.MAX, group)
        here = (largest_here - largest - log_largest).exp_()  # Σ exp(z − max z), C
        sums = torch.stack([here, z_of_target.where(is_here, 0), here if total is None else total])
        dist.all_reduce(sums, group=group)
        p.mul_((here / sums[0])[:, None])
        log_largest, z_of_target, total = -sums[0].log(), sums[1], sums[2] if share else None
    nll = (largest - z_of_target).sub_(log_largest)  # C
    target_part = nll.neg().expm1_()  # C, exact where P[y] is nearly 1
    if total is not None:
        total = rows.vocabulary * (largest - log_largest) - total
        target_part += others
        p.sub_(share)
    if omega is not None:
        target_part *= omega
        p.mul_(omega[:, None])
    grad_logits = p.to(dtype)
    target_part = target_part[:, None].to(dtype)
    if rows.mesh is not None:
        target_part = target_part.where(is_here[:, None], grad_logits.gather(1, y))
    return grad_logits.scatter_(1, y, target_part), nll, total
