"""The element-wise part of the gated loss as one Triton kernel: logits in, likelihood and both residuals out.

One program works through one position. Its first pass over the V logits finds their maximum and the sum of their
exponentials; the second forms

    r[k] = ω (P[k] − Q[k])          for the features, in the memory of the logits
    g[k] = G[k] r[k]                for the output embedding, in a buffer of its own

with Q label-smoothed, ω the weight of the position and G its gates. An element is read twice and written twice (once
without gates): 8 bytes of traffic in half precision. Which positions are padding, and which have a rare target, is
decided where they are: nothing waits for the device.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from .gates import Gates

BLOCK = 4096
"""Logits that a program holds at a time."""
NO_GATES, BY_TOKEN, BY_RATIO = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)
"""Gates at rare targets: none, one for each token, or the ratio of the token's appearances to the target's."""


def form_residuals_(
    logits: Tensor,
    gated: Tensor | None,
    target: Tensor,
    nll: Tensor,
    terms: Tensor,
    prediction: Tensor | None = None,
    *,
    bias: Tensor | None,
    gates: Gates | None,
    importance: Tensor | None,
    label_smoothing: float,
    ignore_index: int,
    scale: float,
    write: bool,
) -> None:
    """Turns the logits of a chunk into residuals, in place, and stores the likelihood of its positions.

    Args:
        logits: (C, V), contiguous, any floating dtype; holds `scale · r` afterwards, where `write`.
        gated: (C, V), like `logits`; receives `scale · g`. Needed with gates.
        target: (C,) int64.
        nll: (C,) float32, receives −log P[y], in nats.
        terms: (C,) float32, receives the summands of the loss.
        prediction: (C,) int64, receives the arg-max, the first of equals; None is not asked for.
        bias: (V,) float32, added to the logits.
        gates: of the update.
        importance: (C,) float32 ω; None is 1.
        label_smoothing: ε.
        ignore_index: positions with this target get zeros everywhere.
        scale: what the residuals are multiplied by before they are rounded to their dtype.
        write: are residuals wanted at all?
    """
    anything = logits  # in place of what is absent; never read
    rare = gate_common = gate_rare = None
    if gates is not None:
        rare, gate_common = gates.rare.to(torch.uint8), gates.gate_common
        gate_rare = gates.gate_rare if gates.appearances is None else gates.appearances
    kind = NO_GATES if gate_rare is None else BY_TOKEN if gates.appearances is None else BY_RATIO
    _form_residuals[(logits.size(0),)](
        logits,
        anything if gated is None else gated,
        target,
        anything if bias is None else bias,
        anything if importance is None else importance,
        anything if rare is None else rare,
        anything if gate_common is None else gate_common.float(),
        anything if gate_rare is None else gate_rare.float(),
        nll,
        terms,
        anything if prediction is None else prediction,
        logits.size(1),
        ignore_index,
        label_smoothing,
        label_smoothing / max(logits.size(1) - 1, 1),
        scale,
        HAS_BIAS=bias is not None,
        HAS_IMPORTANCE=importance is not None,
        HAS_GATES=gates is not None,
        HAS_COMMON=gate_common is not None,
        RARE=kind,
        PREDICT=prediction is not None,
        WRITE=write,
        BLOCK=min(BLOCK, triton.next_power_of_2(logits.size(1))),
        num_warps=8,
    )


@triton.jit
def _form_residuals(
    logits,
    gated,
    target,
    bias,
    importance,
    rare,
    gate_common,
    gate_rare,
    nll,
    terms,
    prediction,
    vocabulary,
    ignore_index,
    epsilon,
    share,
    scale,
    HAS_BIAS: tl.constexpr,
    HAS_IMPORTANCE: tl.constexpr,
    HAS_GATES: tl.constexpr,
    HAS_COMMON: tl.constexpr,
    RARE: tl.constexpr,
    PREDICT: tl.constexpr,
    WRITE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0)
    y = tl.load(target + row)
    counts = y != ignore_index
    y = tl.where(counts, y, 0)
    logits += row.to(tl.int64) * vocabulary
    gated += row.to(tl.int64) * vocabulary
    z_at_target = tl.load(logits + y).to(tl.float32)
    if HAS_BIAS:
        z_at_target += tl.load(bias + y)
    tl.debug_barrier()  # all warps have read it before one of them writes there
    largest, total, logits_sum, best = _normaliser(logits, bias, vocabulary, HAS_BIAS, PREDICT, BLOCK)
    weight = 1.0
    if HAS_IMPORTANCE:
        weight = tl.load(importance + row)
    value = (largest - z_at_target) + tl.log(total)  # the logits first: they cancel exactly at the maximum
    uniform = vocabulary * (largest + tl.log(total)) - logits_sum  # −Σ_k log P[k]
    smoothed = (1 - epsilon - share) * value + share * uniform
    tl.store(nll + row, tl.where(counts, value, 0.0))
    tl.store(terms + row, tl.where(counts, weight * tl.where(epsilon > 0, smoothed, value), 0.0))
    if PREDICT:
        tl.store(prediction + row, tl.where(counts, best, 0))
    if WRITE:
        for start in range(0, vocabulary, BLOCK):
            k = start + tl.arange(0, BLOCK)
            z = _logits_at(logits, bias, k, vocabulary, HAS_BIAS)
            q = tl.where(k == y, 1 - epsilon, share)
            residual = weight * scale * (tl.exp(z - largest) / total - q)
            residual = tl.where(counts, residual, 0.0)
            tl.store(logits + k, residual, mask=k < vocabulary)
            if HAS_GATES:
                gate = _gate(k, y, rare, gate_common, gate_rare, vocabulary, HAS_COMMON, RARE, BLOCK)
                tl.store(gated + k, gate * residual, mask=k < vocabulary)


@triton.jit
def _logits_at(logits, bias, k, vocabulary, HAS_BIAS: tl.constexpr):
    z = tl.load(logits + k, mask=k < vocabulary, other=-float("inf")).to(tl.float32)
    if HAS_BIAS:
        z += tl.load(bias + k, mask=k < vocabulary, other=0.0)
    return z


@triton.jit
def _normaliser(logits, bias, vocabulary, HAS_BIAS: tl.constexpr, PREDICT: tl.constexpr, BLOCK: tl.constexpr):
    """max z, Σ exp(z − max z), Σ z, and where the maximum is."""
    largest = -float("inf")
    total = 0.0
    logits_sum = 0.0
    best = 0
    for start in range(0, vocabulary, BLOCK):
        k = start + tl.arange(0, BLOCK)
        z = _logits_at(logits, bias, k, vocabulary, HAS_BIAS)
        logits_sum += tl.sum(tl.where(k < vocabulary, z, 0.0))
        if PREDICT:
            best = tl.where(tl.max(z) > largest, start + tl.argmax(z, axis=0), best)
        new_largest = tl.maximum(largest, tl.max(z))
        total = total * tl.exp(largest - new_largest) + tl.sum(tl.exp(z - new_largest))
        largest = new_largest
    return largest, total, logits_sum, best


@triton.jit
def _gate(
    k, y, rare, gate_common, gate_rare, vocabulary, HAS_COMMON: tl.constexpr, RARE: tl.constexpr, BLOCK: tl.constexpr
):
    """G at one target y, for tokens k."""
    inside = k < vocabulary
    target_is_rare = tl.load(rare + y) != 0
    gate = tl.full((BLOCK,), 1.0, tl.float32)
    if HAS_COMMON:
        gate = tl.where(target_is_rare, gate, tl.load(gate_common + k, mask=inside, other=1.0))
    if RARE == BY_TOKEN:
        gate = tl.where(target_is_rare, tl.load(gate_rare + k, mask=inside, other=1.0), gate)
    if RARE == BY_RATIO:
        of_target = tl.load(gate_rare + y)
        ratio = tl.minimum(tl.load(gate_rare + k, mask=inside, other=1.0) / tl.maximum(of_target, 1.0), 1.0)
        ratio = tl.where(of_target > 0, ratio, 1.0)  # no token is rarer than an unseen one
        gate = tl.where(target_is_rare, ratio, gate)
    is_rare = tl.load(rare + k, mask=inside, other=0) != 0
    return tl.where(is_rare & (k != y), gate, 1.0)
