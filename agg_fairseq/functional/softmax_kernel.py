"""The softmax of logits on a GPU: a kernel in Triton that reads each row and writes its residual.

A kernel by hand, since `torch.compile` of the same operations takes longer (0.47 ms for 2,048 rows
of 44,256 with a dynamic number of rows, 0.29 with a fixed one, 0.23 by hand, on an H200), compiles
again for each kind of arguments, checks them for longer than a small chunk takes, and needs memory
of its own for the residual: here that takes the first half of the logits' row.

Each function returns None where there is no such kernel: on a CPU, in float64, without Triton. A
Triton that fails is said in the log once.
"""

import importlib.util
import logging
from typing import Any

import torch
from torch import Tensor

logger = logging.getLogger(__name__)

HAS_TRITON = importlib.util.find_spec("triton") is not None
BLOCK = 8192
"""Logits of a row that are held at a time."""

if HAS_TRITON:
    import triton
    import triton.language as tl

    @triton.jit
    def _rows(
        z_ptr, out_ptr, y_ptr, factor_ptr, shift_ptr, lse_ptr, nll_ptr, total_ptr, at_target_ptr,
        V, z_stride, out_stride, share, smoothing, softcap, scale,
        HAS_LSE: tl.constexpr, WRITES: tl.constexpr, HAS_TARGET: tl.constexpr,
        HAS_FACTOR: tl.constexpr, HAS_SHIFT: tl.constexpr, CAPS: tl.constexpr, SLOPES: tl.constexpr,
        BLOCK: tl.constexpr,
    ):  # fmt: skip
        """One row of `exp(z − lse) · factor − shift`, and what is summed over it."""
        row = tl.program_id(0).to(tl.int64)
        z_ptr += row * z_stride
        out_ptr += row * out_stride
        columns = tl.arange(0, BLOCK)
        if HAS_LSE:
            largest = tl.load(lse_ptr + row)
            log_sum = 0.0
        else:
            # Each lane keeps the largest of its logits, and a sum relative to it.
            maxima = tl.full((BLOCK,), float("-inf"), tl.float32)
            sums = tl.zeros((BLOCK,), tl.float32)
            totals = tl.zeros((BLOCK,), tl.float32)
            for start in range(0, V, BLOCK):
                k = start + columns
                z = tl.load(z_ptr + k, mask=k < V, other=float("-inf"))
                if CAPS:
                    z = tl.where(k < V, softcap * _tanh(z / softcap), float("-inf"))
                new = tl.maximum(maxima, z)
                base = tl.where(new == float("-inf"), 0.0, new)
                sums = sums * tl.exp(maxima - base) + tl.exp(z - base)
                maxima = new
                if HAS_SHIFT:
                    totals += tl.where(k < V, z, 0.0)
            largest = tl.max(maxima, 0)
            log_sum = tl.log(tl.sum(sums * tl.exp(maxima - largest), 0))
            tl.store(lse_ptr + row, largest + log_sum)
            if HAS_SHIFT:
                tl.store(total_ptr + row, tl.sum(totals, 0))
        factor = scale
        if HAS_FACTOR:
            factor *= tl.load(factor_ptr + row)
        shift = share * factor
        if HAS_LSE and HAS_SHIFT:
            shift = scale * tl.load(shift_ptr + row)
        y = -1
        entry = 0.0
        if HAS_TARGET:
            y = tl.load(y_ptr + row).to(tl.int32)
            z_y = tl.load(z_ptr + y)
            if CAPS:
                z_y = softcap * _tanh(z_y / softcap)
            # The logits come first: they cancel exactly where y is the arg-max.
            nll = (largest - z_y) + log_sum
            tl.store(nll_ptr + row, nll)
            # P[y] − 1, by its series where P[y] is nearly 1
            series = -nll * (1 - nll * (0.5 - nll * (1.0 / 6 - nll / 24)))
            entry = tl.where(nll < 0.02, series, tl.exp(-nll) - 1)
            entry = (entry + smoothing) * factor
            if SLOPES:
                entry *= 1 - (z_y / softcap) * (z_y / softcap)
            tl.store(at_target_ptr + row, entry)
        if WRITES:
            for start in range(0, V, BLOCK):
                k = start + columns
                z = tl.load(z_ptr + k, mask=k < V, other=float("-inf"))
                if CAPS:
                    z = softcap * _tanh(z / softcap)
                value = tl.exp((z - largest) - log_sum) * factor
                if HAS_SHIFT:
                    value -= shift
                if SLOPES:
                    value *= 1 - (z / softcap) * (z / softcap)
                if HAS_TARGET:
                    value = tl.where(k == y, entry, value)
                # The row of the residual may begin where that of the logits does, with numbers of
                # half the size: what a block writes was read, if all of it was read before.
                tl.debug_barrier()
                tl.store(out_ptr + k, value.to(out_ptr.dtype.element_ty), mask=k < V)

    @triton.jit
    def _tanh(x):
        return 1 - 2 / (tl.exp(2 * x) + 1)


def likelihood(
    logits: Tensor,
    target: Tensor,
    omega: Tensor | None,
    share: float,
    smoothing: float,
    softcap: float | None,
    scale: Tensor | float,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor] | None:
    """`scale · dL/dl` (C, V) of `likelihood_residual`, which says what the arguments are.

    Returns the matrix in the memory of the logits, its entries at the targets, −log P[y],
    logsumexp z, and Σ_k z[k] if there is smoothing, each (C,).
    """
    if isinstance(scale, Tensor):
        omega, scale = scale.expand(len(logits)) if omega is None else omega * scale, 1.0
    nll, lse, total, at_target = logits.new_empty(4, len(logits)).unbind()
    matrix = _launch(
        logits, dtype, target=target, factor=omega, lse=lse, nll=nll, total=total,
        at_target=at_target, share=share, smoothing=smoothing, softcap=softcap, scale=scale,
        caps=True, has_shift=smoothing > 0,
    )  # fmt: skip
    return None if matrix is None else (matrix, at_target, nll, lse, total)


def log_sum_exp(logits: Tensor) -> Tensor | None:
    """Σ_k exp z[k] of each row, as its logarithm (C,)."""
    lse = logits.new_empty(len(logits))
    done = _launch(logits, logits.dtype, lse=lse, writes=False)
    return None if done is None else lse


def scaled_softmax(
    logits: Tensor,
    lse: Tensor,
    factor: Tensor,
    shift: Tensor | None,
    softcap: float | None,
    scale: Tensor | float,
    dtype: torch.dtype,
) -> Tensor | None:
    """`scale · (exp(z − lse) · factor − shift)` (C, V), with a soft cap c times `1 − (z / c)²`.

    The logits z (C, V) are capped already, and their memory is used; `lse`, `factor` and `shift`
    are (C,).
    """
    if isinstance(scale, Tensor):
        factor, shift, scale = factor * scale, None if shift is None else shift * scale, 1.0
    return _launch(
        logits, dtype, lse=lse, factor=factor, shift=shift, softcap=softcap, scale=scale,
        has_lse=True, has_shift=shift is not None,
    )  # fmt: skip


_failed = False


def _launch(
    logits: Tensor,
    dtype: torch.dtype,
    *,
    lse: Tensor,
    target: Tensor | None = None,
    factor: Tensor | None = None,
    shift: Tensor | None = None,
    nll: Tensor | None = None,
    total: Tensor | None = None,
    at_target: Tensor | None = None,
    share: float = 0.0,
    smoothing: float = 0.0,
    softcap: float | None = None,
    scale: float = 1.0,
    has_lse: bool = False,
    has_shift: bool = False,
    caps: bool = False,
    writes: bool = True,
) -> Tensor | None:
    """Runs the kernel over all rows; returns the matrix, or None if it cannot run."""
    global _failed
    if not _is_on_gpu(logits) or logits.dtype != torch.float32 or not HAS_TRITON or _failed:
        return None
    vocabulary = logits.size(1)
    out = logits if dtype == logits.dtype else logits.view(dtype)[:, :vocabulary]
    pointers: list[Any] = [logits, out, target, factor, shift, lse, nll, total, at_target]
    try:
        with torch.cuda.device_of(logits):
            _rows[(len(logits),)](
                *(lse if pointer is None else pointer for pointer in pointers),
                vocabulary, logits.stride(0), out.stride(0),
                share, smoothing, softcap or 0.0, scale,
                HAS_LSE=has_lse, WRITES=writes, HAS_TARGET=target is not None,
                HAS_FACTOR=factor is not None, HAS_SHIFT=has_shift,
                CAPS=caps and softcap is not None, SLOPES=softcap is not None,
                BLOCK=min(BLOCK, triton.next_power_of_2(vocabulary)),
                num_warps=16 if vocabulary > 2048 else 4,
            )  # fmt: skip
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # if it is not Triton's, it comes again with the operations of torch
        reason = str(error).strip().partition("\n")[0]
        logger.warning(f"the softmax runs without a kernel, which costs time: Triton says {reason}")
        _failed = True
        return None
    return out


def _is_on_gpu(tensor: Tensor) -> bool:
    """Does the tensor lie on a GPU of this machine, and not only pretend to, as a fake one does?"""
    return tensor.is_cuda and torch.cuda.is_available()
