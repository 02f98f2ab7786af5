"""Parts of a softmax layer over a chunk of positions: products, and between them the losses and the
residual dL/dz, in the memory of the logits: on a GPU by one kernel (`softmax_kernel.py`), elsewhere
and without Triton by operations of torch.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from . import softmax_kernel
from .unlikelihood import Candidates

CHUNK_ELEMENTS = 2**23
"""Logits held at a time on a CPU: 32 MiB in float32."""
GPU_CHUNK_ELEMENTS, GPU_CHUNK_ROWS = 2**26, 2**11
"""On a GPU, or so many positions, whichever is more: beside the 6·C·V·D operations of a chunk, the
traffic of 8·V·D bytes for dL/dW is to be small, where a byte takes as long as 250 operations."""
HALF_SCALE = 2.0**10  # of residuals in float16; this leaves room for gates of up to 60


_not_compiled: set[Callable[..., Any]] = set()


def compiled(
    function: Callable[..., Any], tensors: tuple[Any, ...], numbers: tuple[Any, ...] = ()
) -> Any:
    """`function(*tensors, *numbers)`, on a GPU by torch.compile if that works."""
    first = tensors[0]
    if first.is_cuda and torch.cuda.is_available() and function not in _not_compiled:
        try:
            return _compile(function)(*tensors, *numbers)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # if it is not the compiler's, it comes again below
            _not_compiled.add(function)
            softmax_kernel.say_failed("torch.compile", error)
    return function(*tensors, *numbers)


@functools.cache
def _compile(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, dynamic=True)


def chunk_rows(weight: Tensor) -> int:
    """The number C of positions in a chunk of logits over W (V, D), at least one."""
    if weight.is_cuda:
        return max(GPU_CHUNK_ROWS, GPU_CHUNK_ELEMENTS // len(weight))
    return max(1, CHUNK_ELEMENTS // len(weight))


def working_dtype(given: Tensor) -> torch.dtype:
    """The dtype of values and gradients: float32, or float64 for a float64 tensor."""
    return torch.float64 if given.dtype == torch.float64 else torch.float32


def product_dtype(features: Tensor) -> torch.dtype:
    """The dtype in which a linear layer multiplies: that of the features, or of autocast."""
    device = features.device.type
    if torch.is_autocast_enabled(device) and features.dtype != torch.float64:
        return torch.get_autocast_dtype(device)
    return features.dtype


def sums_in_float32(dtype: torch.dtype, device: torch.device) -> bool:
    """Can torch sum products of this dtype in float32? Of half precision, on NVIDIA's GPUs."""
    has_it = device.type == "cuda" and torch.version.hip is None
    return has_it or dtype in (torch.float32, torch.float64)


def aligned(weight: Tensor) -> Tensor:
    """W (V, D), in half precision with rows of zeros up to a multiple of 16: otherwise products of
    a GPU are several times slower, and its kernels load single numbers in place of vectors."""
    if weight.dtype in (torch.float32, torch.float64) or len(weight) % 16 == 0:
        return weight
    return F.pad(weight, (0, 0, 0, -len(weight) % 16))


def product(left: Tensor, right: Tensor, out: Tensor | None = None) -> Tensor:
    """`left @ right`, that of half precision summed and returned in float32."""
    if left.dtype in (torch.float32, torch.float64):
        return torch.mm(left, right, out=out)
    return torch.mm(left, right, out_dtype=torch.float32, out=out)


def add_product_(total: Tensor, left: Tensor, right: Tensor, alpha: float = 1.0) -> None:
    """`total += alpha · left @ right`, with `total` in float32 or float64."""
    if left.dtype == total.dtype:
        total.addmm_(left, right, alpha=alpha)
    else:
        torch.addmm(total, left, right, alpha=alpha, out_dtype=total.dtype, out=total)


@dataclass(frozen=True)
class Terms:
    """The terms of the loss, which are arguments of `gated_likelihood`."""

    vocabulary: int  # V; the logits may have more columns, which are no tokens
    label_smoothing: float = 0.0  # ε
    softcap: float | None = None
    position_weight: Tensor | None = None  # (N,)
    candidates: Candidates | None = None
    ul_alpha: float = 0.0
    adv_epsilon: float = 0.0
    predict: bool = False

    @property
    def share(self) -> float:
        """Q of each token but the target, ε/V."""
        return self.label_smoothing / self.vocabulary

    @property
    def others(self) -> float:
        """Q of all tokens but the target, 1 − Q[y] = ε (V − 1)/V."""
        return self.label_smoothing - self.share

    def smoothed(self, nll: Tensor, log_sum_exp: Tensor, total: Tensor) -> Tensor:
        """−Σ_k Q[k] log P[k] (C,), from −log P[y], logsumexp z and Σ_k z[k], (C,) each."""
        of_all = self.vocabulary * log_sum_exp - total  # −Σ_k log P[k]
        return (1 - self.label_smoothing) * nll + self.share * of_all

    def residual_scale(self, dtype: torch.dtype) -> Tensor | float:
        """The factor of residuals: 1, but for float16 `HALF_SCALE` divided by their bound, which is
        |ω| for likelihood and α for unlikelihood."""
        if dtype != torch.float16:
            return 1.0
        alpha = 0.0 if self.candidates is None else self.ul_alpha
        if self.position_weight is None or not len(self.position_weight):
            return HALF_SCALE / (1.0 + alpha)
        return HALF_SCALE / (self.position_weight.float().abs().amax() + alpha).clamp(min=1e-6)


class ChunkValues(NamedTuple):
    """The values (C,) of a chunk of C positions, in nats."""

    at_target: Tensor  # the entry of the residual at the target, scaled as it is, not rounded
    nll: Tensor  # −log P[y], of the lowered logits where there is a margin
    losses: Tensor  # the summands of the loss
    ul_loss: Tensor | None = None  # the unlikelihood, before its weight
    prediction: Tensor | None = None  # int64, the arg-max


def residual_of_chunk(
    logits: Tensor,
    target: Tensor,
    rows: Tensor,
    bias: Tensor | None,
    margin: Tensor | None,
    terms: Terms,
    dtype: torch.dtype,
) -> tuple[Tensor, ChunkValues]:
    """The residual of a chunk, dL/dl times `residual_scale`, (C, V) or wider with zeros; and the
    values of the chunk.

    Args:
        logits: H Wᵀ (C, V) or wider, contiguous; used up.
        target: y (C,).
        rows: (C,) the positions of the chunk among all.
        bias: b (V,) or None.
        margin: m (C,) of adversarial training, or None; set to 0 where the target's logit is not
            positive.
        terms: what the loss consists of.
        dtype: that of the products and of the residual.
    """
    prediction = omega = None
    if terms.position_weight is not None:
        omega = terms.position_weight.index_select(0, rows).to(logits.dtype)
    if bias is not None or margin is not None or terms.predict:
        tokens, y = logits[:, : terms.vocabulary], target[:, None]
        if margin is not None:
            margin.mul_(tokens.gather(1, y).squeeze(1) > 0)
        if bias is not None:
            tokens.add_(bias.to(logits.dtype))
        if terms.predict:
            prediction = tokens.argmax(1)
        if margin is not None:
            tokens.scatter_add_(1, y, -margin[:, None])
    if terms.candidates is None:
        matrix, values = likelihood_residual(logits, target, omega, terms, dtype)
    else:
        candidates = terms.candidates.at(rows, target)
        matrix, values = unlikelihood_residual(logits, target, omega, *candidates, terms, dtype)
    return matrix, values if prediction is None else values._replace(prediction=prediction)


def likelihood_residual(
    logits: Tensor,
    target: Tensor,
    omega: Tensor | None,
    terms: Terms,
    dtype: torch.dtype,
    ranges: Tensor | None = None,
) -> tuple[Tensor, ChunkValues]:
    """The likelihood ω Σ_k −Q[k] log P[k] of P = softmax(z), with dL/dz = ω (P − Q).

    z is l, or c tanh(l / c) with a soft cap c. Q is 1 − ε + ε/V at the target, and ε/V elsewhere.

    Takes the logits l (C, V) or wider, which are used up, targets y (C,), and weights ω (C,) of the
    positions, or None for 1. The terms are ε, c and the scale. The matrix is in `dtype`. With
    `ranges` (2, C), without ε and c, the columns from the first to the last, excluded, compete at
    each position.
    """
    softcap, scale = terms.softcap, terms.residual_scale(dtype)
    if softmax_kernel.can_run(logits):
        row = softmax_kernel.likelihood(
            logits,
            target,
            omega,
            terms.vocabulary,
            terms.share,
            terms.others,
            softcap,
            scale,
            dtype,
            ranges,
        )
        if row is not None:
            matrix, at_target, nll, log_sum_exp, total = row
            losses = nll if total is None else terms.smoothed(nll, log_sum_exp, total)
            losses = losses if omega is None else losses * omega
            return matrix, ChunkValues(at_target, nll, losses)
    y, z = target[:, None], cap_(logits[:, : terms.vocabulary], softcap)
    if ranges is not None:
        column, (first, last) = torch.arange(z.size(1), device=z.device), ranges[:, :, None]
        z.masked_fill_((column < first) | (column >= last), -torch.inf)
    slope = None if softcap is None else 1 - (z / softcap).square()  # C x V, dz/dl
    z_of_target, largest = z.gather(1, y).squeeze(1), z.amax(1)  # C
    total = z.sum(1) if terms.share else None  # C
    matrix = torch.softmax(z, 1, out=z)  # C x V, P
    # The largest probability is at least 1/V, so its logarithm is accurate. In
    # −log P[y] = (max z − z[y]) − log max P the logits cancel exactly where y is the arg-max.
    log_largest = matrix.amax(1).log_()  # C
    losses = nll = (largest - z_of_target).sub_(log_largest)  # C
    at_target = nll.neg().expm1_()  # C, exact where P[y] is nearly 1
    if total is not None:
        losses = terms.smoothed(nll, largest - log_largest, total)
        at_target += terms.others
        matrix.sub_(terms.share)
    if omega is not None:
        losses = losses * omega
        at_target *= omega
        matrix.mul_(omega[:, None])
    if slope is not None:
        at_target *= slope.gather(1, y).squeeze(1)
        matrix.mul_(slope)
    if isinstance(scale, Tensor) or scale != 1:
        at_target *= scale
        matrix.mul_(scale)
    matrix = matrix.to(dtype).scatter_(1, y, at_target[:, None].to(dtype))
    return _widened(matrix, logits), ChunkValues(at_target, nll, losses)


def unlikelihood_residual(
    logits: Tensor,
    target: Tensor,
    omega: Tensor | None,
    tokens: Tensor,
    is_candidate: Tensor,
    terms: Terms,
    dtype: torch.dtype,
) -> tuple[Tensor, ChunkValues]:
    """Likelihood and unlikelihood, −α Σ_c log(1 − P[c]) over the candidates c of each position.

    The arguments are those of `likelihood_residual`, tokens (C, U) that may be candidates, no token
    twice in a row, and which are, (C, U) bool.
    """
    z, softcap = cap_(logits[:, : terms.vocabulary], terms.softcap), terms.softcap
    top = z.argmax(1, keepdim=True)  # C x 1, m
    index = torch.cat([target[:, None], top, tokens], 1)  # C x (2 + U)
    z_at_index = z.gather(1, index)
    total = z.sum(1) if terms.share else None  # C
    z.scatter_(1, top, -torch.inf)
    log_rest = softmax_kernel.log_sum_exp(logits, terms.vocabulary)  # C
    if log_rest is None:
        log_rest = z.logsumexp(1)
    scale = terms.residual_scale(dtype)
    entries, index, factor, shift, nll, losses, ul_loss = compiled(
        _entries,
        (z_at_index, index, log_rest, total, is_candidate, omega, scale),
        (terms.vocabulary, terms.ul_alpha, terms.others, terms.share, softcap),
    )
    matrix = softmax_kernel.scaled_softmax(
        logits, log_rest, factor, shift, terms.vocabulary, softcap, dtype
    )
    if matrix is None:
        slope = None if softcap is None else 1 - (z / softcap).square()
        matrix = z.sub_(log_rest[:, None]).exp_().mul_(factor[:, None])
        if shift is not None:
            matrix.sub_(shift[:, None])
        if slope is not None:
            matrix.mul_(slope)
        matrix = _widened(matrix.to(dtype), logits)
    matrix.scatter_(1, index, entries.to(dtype))
    return matrix, ChunkValues(entries[:, 0], nll, losses, ul_loss)


def _entries(
    z: Tensor,
    index: Tensor,
    log_rest: Tensor,
    total: Tensor | None,
    is_candidate: Tensor,
    omega: Tensor | None,
    scale: Tensor | float,
    vocabulary: int,
    alpha: float,
    others: float,
    share: float,
    softcap: float | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor, Tensor, Tensor]:
    """The residual of likelihood and unlikelihood where it is no multiple of the softmax.

    The gradient of the unlikelihood is `α (u[k] [k is a candidate] − P[k] Σ_c u[c])` with
    `u = P / (1 − P)`. Where the likeliest token m is a candidate, 1 − P[m] may round to 0. So its
    logit is taken out, R is the softmax of the others, and with the log-odds λ of m against them,

        P[m] = σ(λ),   1 − P[m] = σ(−λ),   P[k] = σ(−λ) R[k],   u[m] P[k] = P[m] R[k].

    All other tokens have a P of at most 1/2. So dL/dz[k] = R[k] f − ω Q[k] + α u[k] for k ≠ m.

    Args:
        z: (C, 2 + U) the logits at `index`.
        index: (C, 2 + U) the target, m, and the tokens that may be candidates.
        log_rest: (C,) logsumexp of all logits but that of m.
        total: (C,) the sum of all logits; None without label smoothing.
        is_candidate: (C, U).
        omega: ω (C,), or None for 1.

    The other arguments are the factor of the residual, V, and α, 1 − Q[y], ε/V and c of `Terms`.

    Returns:
        The entries (C, 2 + U) and their tokens; what is no candidate stands for the target again.
        The factor f (C,) of R, and ω ε/V (C,) or None. −log P[y], the summands of the loss, and
        the unlikelihood, (C,).
    """
    y, top, tokens = index[:, 0], index[:, 1], index[:, 2:]  # C, C, C x U
    log_odds = z[:, 1] - log_rest  # C, λ
    p_top, p_rest = torch.sigmoid(log_odds), torch.sigmoid(-log_odds)  # C
    log_beyond_top = F.softplus(-log_odds)  # C, logsumexp z − z[m]
    nll = (z[:, 1] - z[:, 0]) + log_beyond_top  # C
    losses, omega = nll, torch.ones_like(nll) if omega is None else omega
    if total is not None:
        of_all = vocabulary * (z[:, 1] + log_beyond_top) - total  # −Σ_k log P[k]
        losses = (1 - others - share) * nll + share * of_all
    is_top = tokens == top[:, None]  # C x U
    target_is_top = y == top  # C
    r = torch.exp(z - log_rest[:, None])  # C x (2 + U)
    p = p_rest[:, None] * r[:, 2:].masked_fill(is_top, 0.0)  # C x U
    is_other = is_candidate & ~is_top  # a candidate but m
    u = (p / (1 - p)).masked_fill(~is_other, 0.0)  # C x U, at most 1 each
    has_top = (is_candidate & is_top).any(1).to(u.dtype)  # C, is m a candidate?
    ul_loss = has_top * F.softplus(log_odds) - torch.log1p(-p).masked_fill(~is_other, 0.0).sum(1)
    losses = losses * omega + alpha * ul_loss

    likelihood = omega - alpha * u.sum(1)  # C, the factor of P
    f = likelihood * p_rest - alpha * has_top * p_top  # C
    at_top = p_top * (likelihood + alpha * has_top) - omega * share  # C
    # ω (P[m] − Q[m]) is exact as ω ((1 − Q[m]) − (1 − P[m])), if m is the target.
    target_and_top = omega * (others - p_rest)
    target_and_top = target_and_top + (likelihood - omega + alpha * has_top) * p_top
    is_target = tokens == y[:, None]  # C x U
    at_target = r[:, 0] * f - omega * (1 - others) + alpha * (u * is_target).sum(1)
    at_target = torch.where(target_is_top, target_and_top, at_target)  # C
    at_top = torch.where(target_is_top, at_target, at_top)
    at_candidates = r[:, 2:] * f[:, None] - (omega * share)[:, None] + alpha * u  # C x U
    is_entry = is_other & ~is_target
    entries = torch.where(is_entry, at_candidates, at_target[:, None])
    entries = torch.cat([at_target[:, None], at_top[:, None], entries], 1)
    if softcap is not None:
        z = torch.cat([z[:, :2], torch.where(is_entry, z[:, 2:], z[:, :1])], 1)
        entries = entries * (1 - (z / softcap).square())
    index = torch.cat([index[:, :2], torch.where(is_entry, tokens, y[:, None])], 1)
    shift = omega * share * scale if share else None
    return entries * scale, index, f * scale, shift, nll, losses, ul_loss


def gate_columns_(matrix: Tensor, target: Tensor, gate: Tensor | None) -> None:
    """Multiplies each column k < V of a residual (C, V or wider) by gate[k] (V,), but for the
    entries of the targets y (C,); None is 1."""
    if gate is None or not len(matrix):
        return
    if softmax_kernel.can_run(matrix):
        softmax_kernel.gate_columns_(matrix, target, gate)
    else:
        tokens, y = matrix[:, : len(gate)], target[:, None]
        at_target = tokens.gather(1, y)
        tokens.mul_(gate).scatter_(1, y, at_target)


def cap_(logits: Tensor, softcap: float | None) -> Tensor:
    """c tanh(l / c), in the memory of l; l without a soft cap."""
    return logits if softcap is None else logits.div_(softcap).tanh_().mul_(softcap)


def _widened(matrix: Tensor, logits: Tensor) -> Tensor:
    """The matrix (C, V) with zeros, as wide as the logits."""
    more = logits.size(1) - matrix.size(1)
    return F.pad(matrix, (0, more)) if more else matrix
