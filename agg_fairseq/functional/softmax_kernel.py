"""The softmax of logits on a GPU: a kernel in Triton that reads each row and writes its residual.

A kernel by hand: `torch.compile` of the same operations takes longer (0.47 ms for 2,048 rows of
44,256 with a dynamic number of rows, 0.23 by hand, on an H200), compiles again for each kind of
arguments, and needs memory of its own for the residual: here that takes the memory of the logits,
in half precision the first half of each row.

Each function but `gate_columns_` returns None where there is no such kernel: on a CPU, in float64,
without Triton. If Triton fails, the log says so once.
"""

import contextlib
import functools
import logging
from typing import Any

import torch
from torch import Tensor

logger = logging.getLogger(__name__)

BLOCK = 8192
"""Logits of a row that are held at a time."""


def likelihood(
    logits: Tensor,
    target: Tensor,
    omega: Tensor | None,
    vocabulary: int,
    share: float,
    others: float,
    softcap: float | None,
    scale: Tensor | float,
    dtype: torch.dtype,
    ranges: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None] | None:
    """`scale · dL/dl` (C, V) of `likelihood_residual`, which says what the arguments are.

    Returns the matrix in the memory of the logits, its entries at the targets, −log P[y],
    logsumexp z, and Σ_k z[k], None without smoothing, each (C,).
    """
    if isinstance(scale, Tensor):
        omega, scale = scale.expand(len(logits)) if omega is None else omega * scale, 1.0
    nll, lse, total, at_target = logits.new_empty(4, len(logits)).unbind()
    matrix = _launch(
        logits, vocabulary, dtype, target=target, ranges=ranges, factor=omega, lse=lse, nll=nll,
        total=total, at_target=at_target, share=share, others=others, softcap=softcap, scale=scale,
        caps=True, has_shift=share > 0,
    )  # fmt: skip
    if matrix is None:
        return None
    return matrix, at_target, nll, lse, total if share else None


def log_sum_exp(logits: Tensor, vocabulary: int) -> Tensor | None:
    """log Σ_k exp z[k] of each row, (C,)."""
    lse = logits.new_empty(len(logits))
    done = _launch(logits, vocabulary, logits.dtype, lse=lse, writes=False)
    return None if done is None else lse


def scaled_softmax(
    logits: Tensor,
    lse: Tensor,
    factor: Tensor,
    shift: Tensor | None,
    vocabulary: int,
    softcap: float | None,
    dtype: torch.dtype,
) -> Tensor | None:
    """`exp(z − lse) · factor − shift` (C, V), with a soft cap c times `1 − (z / c)²`, in the memory
    of the logits z (C, V), which are capped already."""
    return _launch(
        logits, vocabulary, dtype, lse=lse, factor=factor, shift=shift, softcap=softcap,
        has_lse=True, has_shift=shift is not None,
    )  # fmt: skip


def gate_columns_(matrix: Tensor, target: Tensor, gate: Tensor) -> None:
    """The same as `softmax_layer.gate_columns_`, where `can_run`."""
    rows, width = matrix.shape
    with _device_of(matrix):
        compiled_kernels().gate[(rows, -(-width // BLOCK))](
            matrix, target, gate, len(gate), width, matrix.stride(0), BLOCK=BLOCK, num_warps=8
        )


_failed = False


def _launch(
    logits: Tensor,
    vocabulary: int,
    dtype: torch.dtype,
    *,
    lse: Tensor,
    target: Tensor | None = None,
    ranges: Tensor | None = None,
    factor: Tensor | None = None,
    shift: Tensor | None = None,
    nll: Tensor | None = None,
    total: Tensor | None = None,
    at_target: Tensor | None = None,
    share: float = 0.0,
    others: float = 0.0,
    softcap: float | None = None,
    scale: float = 1.0,
    has_lse: bool = False,
    has_shift: bool = False,
    caps: bool = False,
    writes: bool = True,
) -> Tensor | None:
    """Runs the kernel over all rows; returns the matrix, or None if it cannot run."""
    global _failed
    if not can_run(logits):
        return None
    width = logits.size(1)
    out = logits if dtype == logits.dtype else logits.view(dtype)[:, :width]
    first, last = (None, None) if ranges is None else ranges
    pointers: list[Any] = [
        logits, out, target, first, last, factor, shift, lse, nll, total, at_target,
    ]  # fmt: skip
    try:
        with _device_of(logits):
            compiled_kernels().rows[(len(logits),)](
                *(lse if pointer is None else pointer for pointer in pointers),
                vocabulary, width, logits.stride(0), out.stride(0),
                share, others, softcap or 0.0, scale,
                HAS_LSE=has_lse, WRITES=writes, HAS_TARGET=target is not None,
                HAS_RANGE=ranges is not None, HAS_FACTOR=factor is not None, HAS_SHIFT=has_shift,
                CAPS=caps and softcap is not None, SLOPES=softcap is not None,
                BLOCK=min(BLOCK, 1 << (vocabulary - 1).bit_length()),
                num_warps=16 if vocabulary > 2048 else 4,
            )  # fmt: skip
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # if it is not Triton's, it comes again with the operations of torch
        _failed = True
        say_failed("Triton", error)
        return None
    return out


def can_run(tensor: Tensor) -> bool:
    """Is there a kernel for this tensor? Not for a fake one on a machine without a GPU."""
    if not tensor.is_cuda or tensor.dtype == torch.float64 or not torch.cuda.is_available():
        return False
    return not _failed and compiled_kernels() is not None


@functools.cache
def compiled_kernels() -> Any:
    """The module of the kernels; None without Triton."""
    try:
        from . import triton_kernels as module
    except ImportError as error:
        say_failed("Triton", error)
        return None
    return module


def _device_of(tensor: Tensor) -> contextlib.AbstractContextManager[Any]:
    """Makes the device of a tensor the current one, on which Triton's kernels run."""
    if not tensor.is_cuda or tensor.device.index == torch.cuda.current_device():
        return contextlib.nullcontext()
    return torch.cuda.device(tensor.device)


def say_failed(compiler: str, error: Exception) -> None:
    """Logs that a compiler is missing or fails, and why."""
    reason = str(error).strip().partition("\n")[0]
    logger.warning(f"the loss runs without {compiler}, and slower: {reason}")
