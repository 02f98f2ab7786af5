"""What happens to logits between the products of a softmax layer: values, and the residual dL/dz.

Each function here takes the logits z (C, V) of a chunk of positions and does everything that is
elementwise, or a sum over a row: on a GPU that is one compiled pass (`compiled.py`), which reads
the logits and writes the residual in the dtype of the products; on a CPU the residual takes the
memory of the logits. A few entries of a row, its target first, follow another formula than the
rest of the row. They are returned by themselves, exact, for the caller to write over it.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class Residual(NamedTuple):
    """The residual of a chunk of C positions, and its values, in nats."""

    matrix: Tensor  # (C, V) dL/dz but for the entries, times `scale`, in `dtype`
    index: Tensor  # (C, E) int64, the tokens of the entries; the first is the target
    entries: Tensor  # (C, E) dL/dz there; the same token has the same value
    nll: Tensor  # (C,) −log P[y]
    losses: Tensor  # (C,) the summands of the loss
    ul_loss: Tensor | None = None  # (C,) the unlikelihood, before its weight


def likelihood_residual(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    *,
    label_smoothing: float,
    softcap: float | None,
    scale: Tensor | float,
    dtype: torch.dtype,
    out: Tensor | None,
) -> Residual:
    """The likelihood: dL/dz = ω (P − Q).

    Args:
        logits: z (C, V), capped already.
        target: y (C,).
        weight: ω (C,), of each position; None is 1.
        label_smoothing: ε; Q is 1 − ε at the target, and ε/(V − 1) elsewhere.
        softcap: c, with which z = c tanh(l / c): the residual is that of l.
        scale: the factor of the matrix, which keeps float16 from underflowing.
        dtype: that of the matrix.
        out: memory of the probabilities, `logits` or None.
    """
    vocabulary, y = logits.size(1), target[:, None]
    share = label_smoothing / (vocabulary - 1) if label_smoothing else 0.0
    at_target, largest = logits.gather(1, y).squeeze(1), logits.amax(1)  # C
    total = logits.sum(1) if label_smoothing else None  # C
    slope = None if softcap is None else 1 - (logits / softcap).square()  # C x V, dz/dl
    residual = torch.softmax(logits, 1, out=out)  # C x V, P
    # The largest probability is exp(max z − logsumexp z), and at least 1/V, so its logarithm is
    # accurate. In −log P[y] = (max z − z[y]) − log max P the logits come first: they cancel exactly
    # where y is the arg-max.
    log_largest = residual.amax(1).log()  # C
    nll = losses = (largest - at_target) - log_largest
    entry = torch.expm1(-nll) + label_smoothing  # C, P[y] − (1 − ε), exact where P[y] is nearly 1
    if total is not None:
        uniform = vocabulary * (largest - log_largest) - total  # −Σ_k log P[k]
        losses = (1 - label_smoothing - share) * nll + share * uniform
        residual = residual.sub_(share)
    if weight is not None:
        losses, entry = losses * weight, entry * weight
        residual = residual.mul_(weight[:, None])
    if slope is not None:
        entry = entry * slope.gather(1, y).squeeze(1)
        residual = residual.mul_(slope)
    if isinstance(scale, Tensor) or scale != 1:
        residual = residual.mul_(scale)
    return Residual(residual.to(dtype), y, entry[:, None], nll, losses)


def unlikelihood_residual(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    top: Tensor,
    top_logit: Tensor,
    total: Tensor | None,
    tokens: Tensor,
    is_candidate: Tensor,
    *,
    alpha: float,
    label_smoothing: float,
    softcap: float | None,
    scale: Tensor | float,
    dtype: torch.dtype,
    out: Tensor | None,
) -> Residual:
    """Likelihood and unlikelihood, −α Σ_c log(1 − P[c]) over the candidates c of each position.

    The gradient of the sum is `α (u[k] [k is a candidate] − P[k] Σ_c u[c])` with
    `u = P / (1 − P)`. Where the likeliest token m is a candidate, 1 − P[m] may round to 0. So its
    logit is taken out, R is the softmax of the others, and with the log-odds l of m against them,

        P[m] = σ(l),   1 − P[m] = σ(−l),   P[k] = σ(−l) R[k],   u[m] P[k] = P[m] R[k].

    All other tokens have a P of at most 1/2.

    Args:
        logits: z (C, V), capped already, with −∞ at the likeliest token.
        target: y (C,), as are `weight` and what follows `is_candidate` as of `likelihood_residual`.
        weight: ω (C,) of the likelihood, or None.
        top: (C,) m, the likeliest token.
        top_logit: (C,) its logit.
        total: (C,) the sum of all logits; needed with label smoothing.
        tokens: (C, U), the tokens that may be candidates.
        is_candidate: (C, U), which of them are; those have no token twice.
        alpha: α.
        label_smoothing: ε.
        softcap: c, or None.
        scale: the factor of the matrix.
        dtype: that of the matrix.
        out: memory of the probabilities.
    """
    vocabulary, y = logits.size(1), target[:, None]
    share = label_smoothing / (vocabulary - 1) if label_smoothing else 0.0
    others = torch.cat([y, tokens], 1)  # C x (1 + U)
    z = logits.gather(1, others)
    is_top = others == top[:, None]
    largest = logits.amax(1)
    slope = None if softcap is None else 1 - (logits / softcap).square()
    residual = torch.softmax(logits, 1, out=out)  # C x V, R
    log_odds = top_logit - (largest - residual.amax(1).log())  # C, l
    p_top, p_rest = torch.sigmoid(log_odds), torch.sigmoid(-log_odds)  # C
    log_z_beyond_top = F.softplus(-log_odds)  # C, logsumexp z − z[m]

    nll = torch.where(is_top[:, 0], 0.0, top_logit - z[:, 0]) + log_z_beyond_top  # C
    losses = nll
    if total is not None:
        uniform = vocabulary * (top_logit + log_z_beyond_top) - total
        losses = (1 - label_smoothing - share) * nll + share * uniform
    omega = torch.ones_like(nll) if weight is None else weight
    # The candidates but m, and whether m is one.
    counts = is_candidate & ~is_top[:, 1:]  # C x U
    r = torch.where(is_top, 0.0, residual.gather(1, others))  # C x (1 + U)
    p = p_rest[:, None] * r
    u = torch.where(counts, p[:, 1:] / (1 - p[:, 1:]), 0.0)  # C x U, at most 1 each
    has_top = (is_candidate & is_top[:, 1:]).any(1).to(u.dtype)  # C
    ul_loss = has_top * F.softplus(log_odds) - torch.where(counts, torch.log1p(-p[:, 1:]), 0).sum(1)
    losses = losses * omega + alpha * ul_loss

    # dL/dz[k] = R[k] f − ω Q[k] + α u[k] for k ≠ m, and dL/dz[m].
    likelihood = omega - alpha * u.sum(1)  # C, the factor of P
    f = (likelihood * p_rest - alpha * has_top * p_top)[:, None]  # C x 1
    at_top = p_top * (likelihood + alpha * has_top) - omega * share
    # ω (P[m] − (1 − ε)) exactly, if m is the target
    at_target_and_top = (
        omega * (label_smoothing - p_rest) + (likelihood - omega + alpha * has_top) * p_top
    )
    is_target = tokens == y  # C x U
    at_target = r[:, :1] * f - (omega * (1 - label_smoothing))[:, None]
    at_target = at_target + alpha * (u * is_target).sum(1, keepdim=True)
    at_target = torch.where(is_top[:, :1], at_target_and_top[:, None], at_target)  # C x 1
    at_candidates = r[:, 1:] * f - (omega * share)[:, None] + alpha * u  # C x U
    # What is no candidate stands for the target again, and m for itself.
    is_entry = counts & ~is_target
    entries = torch.cat(
        [
            at_target,
            torch.where(is_top[:, :1], at_target, at_top[:, None]),
            torch.where(is_entry, at_candidates, at_target),
        ],
        1,
    )
    index = torch.cat([y, top[:, None], torch.where(is_entry, tokens, y)], 1)
    residual = residual.mul_(f)
    if label_smoothing:
        residual = residual.sub_((omega * share)[:, None])
    if slope is not None:
        z_of_entries = torch.cat([z[:, :1], top_logit[:, None], z[:, 1:]], 1)
        at_entry = torch.cat([is_top[:, :1], torch.ones_like(y, dtype=torch.bool), is_entry], 1)
        z_of_entries = torch.where(at_entry, z_of_entries, z[:, :1])
        z_of_entries = torch.where(index == top[:, None], top_logit[:, None], z_of_entries)
        entries = entries * (1 - (z_of_entries / softcap).square())
        residual = residual.mul_(slope)
    if isinstance(scale, Tensor) or scale != 1:
        residual = residual.mul_(scale)
    return Residual(residual.to(dtype), index, entries, nll, losses, ul_loss)
