"""The softmax of logits on a GPU: one kernel in Triton that reads each row and writes its gradient.

By hand, since `torch.compile` of the same operations takes longer (0.47 ms for 2,048 rows of 44,256
with a dynamic number of rows, 0.23 by hand, on an H200), compiles again for each kind of arguments,
and needs memory of its own for the gradient: here that takes the memory of the logits, in half
precision the first half of each row.
"""

import contextlib
import functools
from typing import Any

import torch
from torch import Tensor

from .compiling import say_failed

BLOCK = 8192
"""Logits of a row that are held at a time."""

_failed = False


def softmax_grad_(
    logits: Tensor,
    target: Tensor,
    omega: Tensor | None,
    share: float,
    others: float,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor | None] | None:
    """What `losses.softmax_grad_` says, where `can_run`, with ε/V and 1 − Q[y] of label
    smoothing. None if Triton fails, and the log says so once."""
    global _failed
    rows, vocabulary = logits.shape
    out = logits if dtype == logits.dtype else logits.view(dtype)[:, :vocabulary]
    nll, total = logits.new_empty(2, rows).unbind()
    pointers = logits, out, target, omega, nll, total
    try:
        with _device(logits):
            compiled_kernel()[(rows,)](
                *(nll if pointer is None else pointer for pointer in pointers),
                vocabulary, logits.stride(0), out.stride(0), share, others,
                HAS_FACTOR=omega is not None, HAS_SHIFT=share > 0,
                BLOCK=min(BLOCK, 1 << (vocabulary - 1).bit_length()),
                num_warps=16 if vocabulary > 2048 else 4,
            )  # fmt: skip
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # if it is not Triton's, it comes again with the operations of torch
        _failed = True
        say_failed("Triton", error)
        return None
    return out, nll, total if share else None


def can_run(tensor: Tensor) -> bool:
    """Is there a kernel for this tensor? Not for a fake one on a machine without a GPU."""
    if not tensor.is_cuda or tensor.dtype == torch.float64 or not torch.cuda.is_available():
        return False
    return not _failed and compiled_kernel() is not None


@functools.cache
def compiled_kernel() -> Any:
    """The kernel; None without Triton."""
    try:
        from .triton_kernels import softmax_grad
    except ImportError as error:
        say_failed("Triton", error)
        return None
    return softmax_grad


def _device(tensor: Tensor) -> contextlib.AbstractContextManager[Any]:
    """Makes the device of a tensor the current one, on which Triton's kernels run."""
    if not tensor.is_cuda or tensor.device.index == torch.cuda.current_device():
        return contextlib.nullcontext()
    return torch.cuda.device(tensor.device)
