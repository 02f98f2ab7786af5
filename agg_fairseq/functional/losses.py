"""Losses as functions of logits: what follows a linear layer, in `chunked` or alone.

With logits z (C, V), targets y (C,), and P = softmax(z).
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from . import softmax_kernel
from .chunks import Chunk, Values


class TopOdds(NamedTuple):
    """A softmax as the likeliest token m against all others, so that no digit is lost where P[m]
    rounds to 1: with R the softmax without m, and λ the log-odds of m, 1 − P[m] = σ(−λ), and
    P[k] = σ(−λ) R[k] <= 1/2 for the others. Each (C, 1)."""

    token: Tensor  # int64, m
    logit: Tensor  # z[m]
    log_rest: Tensor  # logsumexp of all logits but z[m]


def top_odds(logits: Tensor) -> TopOdds:
    """The odds of the likeliest token of logits (C, V)."""
    top = logits.argmax(1, keepdim=True)
    log_rest = logits.scatter(1, top, -torch.inf).logsumexp(1, keepdim=True)
    return TopOdds(top, logits.gather(1, top), log_rest)


def likelihood(
    logits: Tensor, target: Tensor, label_smoothing: float = 0.0, odds: TopOdds | None = None
) -> tuple[Tensor, Tensor]:
    """−Σ_k Q[k] log P[k], with Q of ε/V for each token and 1 − ε more for the target; and
    −log P[y]. Both (C,), in nats. `odds` are those of the logits, if they are known.

    Reference: label smoothing as torch's `F.cross_entropy`; Szegedy et al. (2016), Sec. 7.
    """
    _, z_top, log_rest = top_odds(logits) if odds is None else odds
    log_beyond_top = F.softplus(log_rest - z_top)  # −log P[m]
    nll = (z_top - logits.gather(1, target[:, None]) + log_beyond_top).squeeze(1)
    if not label_smoothing:
        return nll, nll
    vocabulary = logits.size(1)
    total = vocabulary * (z_top + log_beyond_top).squeeze(1) - logits.sum(1)  # −Σ_k log P[k]
    return smoothed(nll, total, vocabulary, label_smoothing), nll


def smoothed(nll: Tensor, total: Tensor, vocabulary: int, label_smoothing: float) -> Tensor:
    """−Σ_k Q[k] log P[k], from −log P[y] and −Σ_k log P[k], (C,) each."""
    return (1 - label_smoothing) * nll + label_smoothing / vocabulary * total


def unlikelihood(
    logits: Tensor, tokens: Tensor, is_candidate: Tensor, odds: TopOdds | None = None
) -> Tensor:
    """−Σ_c log(1 − P[c]) over candidates c, (C,), in nats.

    Args:
        logits: (C, V).
        tokens: (C, U) int64, no token that is a candidate twice in a row.
        is_candidate: (C, U) bool.
        odds: those of the logits, if they are known.

    Reference: Welleck et al. (2020), Eq. 4.
    """
    top, z_top, log_rest = top_odds(logits) if odds is None else odds
    log_beyond_rest = F.softplus(z_top - log_rest)  # −log(1 − P[m])
    is_other = is_candidate & (tokens != top)
    log_p = logits.gather(1, tokens) - log_rest - log_beyond_rest
    top_losses = log_beyond_rest.masked_fill(~is_candidate | is_other, 0.0)
    return (top_losses - torch.log1p(-log_p.masked_fill(~is_other, -torch.inf).exp())).sum(1)


def adversarial_margin(features: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """δ·h (C,), by which adversarial training lowers the logits of the targets: δ is what lowers
    w_y·h the most among all of length ε ‖w_y‖, where w_y·h > 0, and is held fixed.

    Args:
        features: (C, D) H, through which the margin is differentiated.
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
    return (delta * h).sum(1)


def soft_cap(logits: Tensor, c: float) -> Tensor:
    """c tanh(z / c), which bounds logits to ±c, as in Gemma 2."""
    return c * torch.tanh(logits / c)


def check_weights(label_smoothing: float = 0.0, **weights: float) -> None:
    """Raises ValueError for an ε out of [0, 1], or a weight that is negative or not finite."""
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"expected label_smoothing in [0, 1], got {label_smoothing}")
    for name, weight in weights.items():
        if not 0 <= weight < math.inf:
            raise ValueError(f"expected {name} of at least 0, got {weight}")


@dataclass
class Likelihood:
    """The `likelihood` of a chunk, weighted by position, with the gradient in the memory of the
    logits.

    Args:
        label_smoothing: ε in [0, 1].
        position_weight: ω (N,), of all positions; None is 1.
        predict: also return the arg-max of P, as `prediction`.
    """

    label_smoothing: float = 0.0
    position_weight: Tensor | None = None
    predict: bool = False

    def __call__(self, logits: Tensor, chunk: Chunk, odds: TopOdds | None = None) -> Values:
        """`losses`, the summands; and `nll`, −log P[y]. `odds` as of `likelihood`."""
        losses, nll = likelihood(logits, chunk.target, self.label_smoothing, odds)
        if self.position_weight is not None:
            losses = losses * self.position_weight[chunk.positions]
        values = {"losses": losses, "nll": nll}
        return values | {"prediction": logits.argmax(1)} if self.predict else values

    def residual_(
        self, logits: Tensor, chunk: Chunk, dtype: torch.dtype, scale: Tensor | float | None
    ) -> tuple[Values, Tensor]:
        """The same, and `scale · dL/dz = scale · ω (P − Q)` (C, V) in `dtype`, in the memory of the
        logits."""
        values = {"prediction": logits.argmax(1)} if self.predict else {}
        omega = factor = None
        if self.position_weight is not None:
            omega = factor = self.position_weight[chunk.positions].to(logits.dtype)
        if logits.is_cuda:  # elsewhere all positions have a target
            factor = torch.ones_like(logits[:, 0]) if omega is None else omega
            factor = factor.where(chunk.has_target, 0)
        if scale is not None:
            factor = (torch.ones_like(logits[:, 0]) if factor is None else factor) * scale
        residual, nll, total = softmax_residual_(
            logits, chunk.target, factor, dtype, self.label_smoothing
        )
        losses = nll
        if total is not None:
            losses = smoothed(nll, total, logits.size(1), self.label_smoothing)
        values |= {"losses": losses if omega is None else losses * omega, "nll": nll}
        return values, residual


def softmax_residual_(
    logits: Tensor,
    target: Tensor,
    omega: Tensor | None,
    dtype: torch.dtype,
    label_smoothing: float = 0.0,
    ranges: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """dL/dz = ω (P − Q) (C, V), in the memory of the logits z; −log P[y] (C,); and with label
    smoothing −Σ_k log P[k] (C,).

    With `ranges` (2, C), without label smoothing, the columns from the first to the last, excluded,
    compete at each position.
    """
    share = label_smoothing / logits.size(1)  # ε/V
    others = label_smoothing - share  # 1 − Q[y]
    if logits.is_cuda and softmax_kernel.can_run(logits):
        arguments = logits, target, omega, share, others, dtype, ranges
        if (found := softmax_kernel.residual_(*arguments)) is not None:
            return found
    y = target[:, None]
    if ranges is not None:
        column = torch.arange(logits.size(1), device=logits.device)
        first, last = ranges[:, :, None]
        logits.masked_fill_((column < first) | (column >= last), -torch.inf)
    z_of_target, largest = logits.gather(1, y).squeeze(1), logits.amax(1)  # C
    total = logits.sum(1) if share else None  # C
    residual = torch.softmax(logits, 1, out=logits)  # C x V, P
    # The largest probability is at least 1/V, so its logarithm is accurate. In
    # −log P[y] = (max z − z[y]) − log max P the logits cancel exactly where y is the arg-max.
    log_largest = residual.amax(1).log_()  # C
    nll = (largest - z_of_target).sub_(log_largest)  # C
    target_part = nll.neg().expm1_()  # C, exact where P[y] is nearly 1
    if total is not None:
        total = logits.size(1) * (largest - log_largest) - total
        target_part += others
        residual.sub_(share)
    if omega is not None:
        target_part *= omega
        residual.mul_(omega[:, None])
    residual = residual.to(dtype).scatter_(1, y, target_part[:, None].to(dtype))
    return residual, nll, total
