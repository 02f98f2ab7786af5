"""What happens to logits between the products of a softmax layer: values, and the residual dL/dz.

The functions take the logits l (C, V) of a chunk of positions, and form the residual in the memory
of the logits. On a GPU one kernel reads a row and writes it (`softmax_kernel.py`); elsewhere, and
on a GPU without Triton, the same is done by operations of torch.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from . import softmax_kernel


class Residual(NamedTuple):
    """The residual of a chunk of C positions, and its values, in nats."""

    matrix: Tensor  # (C, V) scale · dL/dl, in `dtype`
    at_target: Tensor  # (C,) its entry at the target, not rounded
    nll: Tensor  # (C,) −log P[y]
    losses: Tensor  # (C,) the summands of the loss
    ul_loss: Tensor | None = None  # (C,) the unlikelihood, before its weight


def likelihood_residual(
    logits: Tensor,
    target: Tensor,
    omega: Tensor | None,
    *,
    label_smoothing: float,
    softcap: float | None,
    scale: Tensor | float,
    dtype: torch.dtype,
) -> Residual:
    """The likelihood ω Σ_k −Q[k] log P[k] of P = softmax(z), with dL/dz = ω (P − Q).

    Args:
        logits: l (C, V), which are used up.
        target: y (C,).
        omega: ω (C,), the weight of each position; None is 1.
        label_smoothing: ε; Q is 1 − ε at the target, and ε/(V − 1) elsewhere.
        softcap: c, with which z = c tanh(l / c); None is z = l.
        scale: the factor of the residual, which keeps float16 from underflowing.
        dtype: that of the matrix.
    """
    vocabulary, y = logits.size(1), target[:, None]
    share = label_smoothing / (vocabulary - 1) if label_smoothing else 0.0
    row = softmax_kernel.likelihood(
        logits, target, omega, share, label_smoothing, softcap, scale, dtype
    )
    if row is not None:
        matrix, at_target, nll, log_sum_exp, total = row
    else:
        z = logits if softcap is None else cap_(logits, softcap)
        slope = None if softcap is None else 1 - (z / softcap).square()  # C x V, dz/dl
        z_of_target, largest = z.gather(1, y).squeeze(1), z.amax(1)  # C
        total = z.sum(1) if label_smoothing else None  # C
        matrix = torch.softmax(z, 1, out=z)  # C x V, P
        # The largest probability is exp(max z − logsumexp z), and at least 1/V, so its logarithm is
        # accurate. In −log P[y] = (max z − z[y]) − log max P the logits come first: they cancel
        # exactly where y is the arg-max.
        log_largest = matrix.amax(1).log()  # C
        nll, log_sum_exp = (largest - z_of_target) - log_largest, largest - log_largest
        at_target = torch.expm1(-nll) + label_smoothing  # C, exact where P[y] is nearly 1
        if label_smoothing:
            matrix.sub_(share)
        if omega is not None:
            at_target *= omega
            matrix.mul_(omega[:, None])
        if slope is not None:
            at_target *= slope.gather(1, y).squeeze(1)
            matrix.mul_(slope)
        matrix, at_target = _scaled(matrix, at_target, scale, dtype)
        matrix.scatter_(1, y, at_target[:, None].to(dtype))
    losses = nll
    if label_smoothing:
        uniform = vocabulary * log_sum_exp - total  # −Σ_k log P[k]
        losses = (1 - label_smoothing - share) * nll + share * uniform
    if omega is not None:
        losses = losses * omega
    return Residual(matrix, at_target, nll, losses)


def unlikelihood_residual(
    logits: Tensor,
    target: Tensor,
    omega: Tensor | None,
    tokens: Tensor,
    is_candidate: Tensor,
    *,
    alpha: float,
    label_smoothing: float,
    softcap: float | None,
    scale: Tensor | float,
    dtype: torch.dtype,
) -> Residual:
    """Likelihood and unlikelihood, −α Σ_c log(1 − P[c]) over the candidates c of each position.

    The gradient of the sum is `α (u[k] [k is a candidate] − P[k] Σ_c u[c])` with
    `u = P / (1 − P)`. Where the likeliest token m is a candidate, 1 − P[m] may round to 0. So its
    logit is taken out, R is the softmax of the others, and with the log-odds λ of m against them,

        P[m] = σ(λ),   1 − P[m] = σ(−λ),   P[k] = σ(−λ) R[k],   u[m] P[k] = P[m] R[k].

    All other tokens have a P of at most 1/2.

    Args:
        logits: l (C, V), which are used up.
        target: y (C,).
        omega: ω (C,), the weight of the likelihood; None is 1.
        tokens: (C, U), the tokens that may be candidates.
        is_candidate: (C, U), which of them are; among those no token is there twice.
        alpha: α.
        label_smoothing: this and what follows as of `likelihood_residual`.
        softcap: c.
        scale: the factor of the residual.
        dtype: that of the matrix.
    """
    vocabulary, y = logits.size(1), target[:, None]
    share = label_smoothing / (vocabulary - 1) if label_smoothing else 0.0
    z = logits if softcap is None else cap_(logits, softcap)
    top = z.argmax(1, keepdim=True)  # C x 1, m
    z_top = z.gather(1, top)  # C x 1
    others = torch.cat([y, tokens], 1)  # C x (1 + U)
    z_others = z.gather(1, others)
    total = z.sum(1) if label_smoothing else None  # C
    z.scatter_(1, top, -torch.inf)
    log_rest = softmax_kernel.log_sum_exp(z)  # C
    if log_rest is None:
        log_rest = z.logsumexp(1)
    log_odds = z_top.squeeze(1) - log_rest  # C, λ
    p_top, p_rest = torch.sigmoid(log_odds), torch.sigmoid(-log_odds)  # C
    log_beyond_top = F.softplus(-log_odds)  # C, logsumexp z − z[m]

    nll = (z_top - z_others[:, :1]).squeeze(1) + log_beyond_top  # C
    losses, weight = nll, torch.ones_like(nll) if omega is None else omega
    if label_smoothing:
        uniform = vocabulary * (z_top.squeeze(1) + log_beyond_top) - total
        losses = (1 - label_smoothing - share) * nll + share * uniform
    is_top = others == top  # C x (1 + U)
    r = torch.exp(z_others - log_rest[:, None]).masked_fill(is_top, 0.0)
    p = p_rest[:, None] * r
    counts = is_candidate & ~is_top[:, 1:]  # C x U, the candidates but m
    u = (p[:, 1:] / (1 - p[:, 1:])).masked_fill(~counts, 0.0)  # C x U, at most 1 each
    has_top = (is_candidate & is_top[:, 1:]).any(1).to(u.dtype)  # C, is m a candidate?
    ul_loss = has_top * F.softplus(log_odds)
    ul_loss = ul_loss - torch.log1p(-p[:, 1:]).masked_fill(~counts, 0.0).sum(1)
    losses = losses * weight + alpha * ul_loss

    # dL/dz[k] is R[k] f − ω Q[k] + α u[k] for k ≠ m.
    likelihood = weight - alpha * u.sum(1)  # C, the factor of P
    f = likelihood * p_rest - alpha * has_top * p_top  # C
    at_top = p_top * (likelihood + alpha * has_top) - weight * share  # C
    # ω (P[m] − (1 − ε)) is exact as ω (ε − (1 − P[m])), if m is the target.
    top_is_target = weight * (label_smoothing - p_rest)
    top_is_target = top_is_target + (likelihood - weight + alpha * has_top) * p_top
    is_target = tokens == y  # C x U
    at_target = r[:, 0] * f - weight * (1 - label_smoothing) + alpha * (u * is_target).sum(1)
    at_target = torch.where(is_top[:, 0], top_is_target, at_target)  # C
    at_top = torch.where(is_top[:, 0], at_target, at_top)
    at_candidates = r[:, 1:] * f[:, None] - (weight * share)[:, None] + alpha * u  # C x U
    # What is no candidate stands for the target again.
    is_entry = counts & ~is_target
    index = torch.cat([y, top, torch.where(is_entry, tokens, y)], 1)  # C x (2 + U)
    entries = torch.where(is_entry, at_candidates, at_target[:, None])
    entries = torch.cat([at_target[:, None], at_top[:, None], entries], 1)
    if softcap is not None:
        z_others = torch.where(is_top, z_top, z_others)
        z_entries = torch.where(is_entry, z_others[:, 1:], z_others[:, :1])
        z_entries = torch.cat([z_others[:, :1], z_top, z_entries], 1)
        entries = entries * (1 - (z_entries / softcap).square())
    shift = weight * share if label_smoothing else None
    matrix = softmax_kernel.scaled_softmax(z, log_rest, f, shift, softcap, scale, dtype)
    if matrix is not None:
        entries = entries * scale
    else:
        slope = None if softcap is None else 1 - (z / softcap).square()
        matrix = z.sub_(log_rest[:, None]).exp_().mul_(f[:, None])
        if shift is not None:
            matrix.sub_(shift[:, None])
        if slope is not None:
            matrix.mul_(slope)
        matrix, entries = _scaled(matrix, entries, scale, dtype)
    matrix.scatter_(1, index, entries.to(dtype))
    return Residual(matrix, entries[:, 0], nll, losses, ul_loss)


def cap_(logits: Tensor, softcap: float) -> Tensor:
    """c tanh(l / c), in the memory of l."""
    return logits.div_(softcap).tanh_().mul_(softcap)


def _scaled(
    matrix: Tensor, entries: Tensor, scale: Tensor | float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """The matrix and its entries times the scale, the matrix in `dtype`."""
    if isinstance(scale, Tensor) or scale != 1:
        matrix, entries = matrix.mul_(scale), entries * scale
    return matrix.to(dtype), entries
