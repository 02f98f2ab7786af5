"""The element-wise part of `fused.py` as one Triton kernel: logits in, likelihood and both residuals out.

One program handles one position. Its first pass over the V logits finds their maximum and the sum of their
exponentials; the second forms

    r[k] = ω (P[k] − Q[k])          for the features, in the memory of the logits
    g[k] = G[k] r[k]                for the output embedding, in a buffer of its own

with Q label-smoothed, ω the weight of the position and G its gates. With a soft cap c, the logits z = c tanh(z'/c) are
formed from z' in both passes, and r is multiplied by their slope 1 − (z/c)². An element is read twice and written twice
(once without gates): 8 bytes of traffic in half precision, and the 4 bytes of its gate, which the cache holds. The
kernel itself decides which positions are padding and which have a rare target, so the host never waits for the device.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..gates import Gates
from ..loss_core import Options, Outputs

BLOCK = 4096  # logits that a program holds at a time
ALIGNMENT = 16  # the width of a row of logits is a multiple of this, so that it can be read 16 bytes at a time


class Operands:
    """What the kernel reads beside the logits, for all N positions; contiguous, since it reads addresses.

    Vectors over the vocabulary are `width` long, as the rows of logits are: V, rounded up to a multiple of `ALIGNMENT`.
    """

    def __init__(
        self, target: Tensor, bias: Tensor | None, importance: Tensor | None, gates: Gates | None, vocabulary: int
    ) -> None:
        self.vocabulary, self.width = vocabulary, -(-vocabulary // ALIGNMENT) * ALIGNMENT

        def padded(vector: Tensor, value: float) -> Tensor:
            """A vector (V,), filled up with `value` to (width,)."""
            wide = vector.new_full((self.width,), value)
            wide[:vocabulary] = vector
            return wide

        self.target = target.contiguous()  # (N,) int64 y
        self.bias = None if bias is None else padded(bias.float(), 0.0)  # (width,) float32
        self.importance = None if importance is None else importance.float().contiguous()  # (N,) float32 ω; None is 1
        self.rare = self.gates = None
        if gates is not None:
            self.rare = gates.rare.to(torch.uint8).contiguous()  # (V,) uint8 R
            ones = torch.ones_like(gates.rare, dtype=torch.float32)
            rows = (gates.at_common_targets(like=ones), gates.at_rare_targets(like=ones))
            # (2, width) float32, 1 outside R: at common targets, and at rare ones
            self.gates = torch.stack([padded(ones if row is None else row, 1.0) for row in rows])


def form_residuals_(
    logits: Tensor,
    gated: Tensor | None,
    operands: Operands,
    start: int,
    outputs: Outputs,
    options: Options,
    *,
    scale: float,
    write: bool,
) -> None:
    """Turns the logits of a chunk into residuals, in place, and stores the likelihood of its positions in `outputs`.

    Args:
        logits: (C, width), contiguous, any floating dtype, −∞ beyond V; holds `scale · r` afterwards, where `write`.
        gated: (C, width), like `logits`; receives `scale · g`. Needed with gates.
        operands, outputs: of all N positions; outputs of padding get zeros, the arg-max is the first of equal ones.
        start: the chunk's first position.
        scale: what the residuals are multiplied by before they are rounded to their dtype.
        write: whether residuals are needed at all.
    """
    anything = logits  # stands for tensors that are absent, and is never read through their arguments
    with torch.cuda.device_of(logits):  # Triton launches on the current device, which may be another
        _form_residuals[(logits.size(0),)](
            logits,
            anything if gated is None else gated,
            operands.target,
            anything if operands.bias is None else operands.bias,
            anything if operands.importance is None else operands.importance,
            anything if gated is None else operands.rare,
            anything if gated is None else operands.gates,
            outputs.nll,
            outputs.losses,
            anything if outputs.prediction is None else outputs.prediction,
            start,
            operands.vocabulary,
            operands.width,
            options.ignore_index,
            options.label_smoothing,
            options.label_smoothing / max(operands.vocabulary - 1, 1),
            scale,
            options.softcap or 0.0,
            HAS_BIAS=operands.bias is not None,
            HAS_IMPORTANCE=operands.importance is not None,
            HAS_GATES=gated is not None,
            HAS_CAP=options.softcap is not None,
            PREDICT=outputs.prediction is not None,
            WRITE=write,
            BLOCK=min(BLOCK, triton.next_power_of_2(operands.width)),
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
    gates,
    nll,
    losses,
    prediction,
    start,
    vocabulary,
    width,
    ignore_index,
    epsilon,
    share,
    scale,
    cap,
    HAS_BIAS: tl.constexpr,
    HAS_IMPORTANCE: tl.constexpr,
    HAS_GATES: tl.constexpr,
    HAS_CAP: tl.constexpr,
    PREDICT: tl.constexpr,
    WRITE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    position = start + row
    y = tl.load(target + position)
    counts = y != ignore_index
    y = tl.where(counts, y, 0)
    logits += row * width
    gated += row * width

    # First pass: max z, Σ exp(z − max z), which is rescaled whenever the maximum grows, Σ z and arg-max z. Then
    # −log P[y] = (max z − z[y]) + log Σ exp(z − max z), where the logits come first because they cancel exactly at the
    # maximum.
    z_at_target = tl.load(logits + y).to(tl.float32)
    if HAS_BIAS:
        z_at_target += tl.load(bias + y)
    if HAS_CAP:
        z_at_target, slope_at_target = _capped(z_at_target, cap)
    tl.debug_barrier()  # all warps have read it before one of them writes there
    largest = -3.4e38  # finite, since a block may hold nothing but −∞
    total = 0.0
    logits_sum = 0.0
    best = 0
    for first in range(0, width, BLOCK):
        k = first + tl.arange(0, BLOCK)
        z = _logits_at(logits, bias, k, width, HAS_BIAS)
        if HAS_CAP:
            z, _ = _capped(z, cap)
            z = tl.where(k < vocabulary, z, -float("inf"))
        logits_sum += tl.sum(tl.where(k < vocabulary, z, 0.0))
        if PREDICT:
            best = tl.where(tl.max(z) > largest, first + tl.argmax(z, axis=0), best)
        new_largest = tl.maximum(largest, tl.max(z))
        total = total * tl.exp(largest - new_largest) + tl.sum(tl.exp(z - new_largest))
        largest = new_largest
    weight = 1.0
    if HAS_IMPORTANCE:
        weight = tl.load(importance + position)
    value = (largest - z_at_target) + tl.log(total)
    uniform = vocabulary * (largest + tl.log(total)) - logits_sum  # −Σ_k log P[k]
    smoothed = (1 - epsilon - share) * value + share * uniform
    tl.store(nll + position, tl.where(counts, value, 0.0))
    tl.store(losses + position, tl.where(counts, weight * tl.where(epsilon > 0, smoothed, value), 0.0))
    if PREDICT:
        tl.store(prediction + position, tl.where(counts, best, 0))

    # Second pass: the residuals, over the logits, which are read again.
    if WRITE:
        if HAS_GATES:
            gates += tl.where(tl.load(rare + y) != 0, width, 0)  # the row of the table for targets of this kind
        for first in range(0, width, BLOCK):
            k = first + tl.arange(0, BLOCK)
            z = _logits_at(logits, bias, k, width, HAS_BIAS)
            slope = 1.0
            if HAS_CAP:
                z, slope = _capped(z, cap)
            q = tl.where(k == y, 1 - epsilon, share)
            residual = weight * scale * slope * (tl.exp(z - largest) / total - q)
            residual = tl.where(counts, residual, 0.0)
            tl.store(logits + k, residual, mask=k < width)
            if HAS_GATES:
                gate = tl.load(gates + k, mask=k < width, other=1.0)
                tl.store(gated + k, tl.where(k == y, 1.0, gate) * residual, mask=k < width)


@triton.jit
def _capped(z, cap):
    """c tanh(z/c) and its slope: with u = exp(−2|x|), tanh |x| = (1 − u) / (1 + u) and 1 − tanh² x = 4u / (1 + u)²."""
    u = tl.exp(-2 * tl.abs(z) / cap)
    tanh = (1 - u) / (1 + u)
    return cap * tl.where(z < 0, -tanh, tanh), 4 * u / ((1 + u) * (1 + u))


@triton.jit
def _logits_at(logits, bias, k, width, HAS_BIAS: tl.constexpr):
    """A block of one row of logits, with the bias, in float32; −∞ beyond the row."""
    z = tl.load(logits + k, mask=k < width, other=-float("inf")).to(tl.float32)
    if HAS_BIAS:
        z += tl.load(bias + k, mask=k < width, other=0.0)
    return z
