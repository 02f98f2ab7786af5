"""Compilation of elementwise functions for a GPU."""

import functools
import logging
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

logger = logging.getLogger(__name__)


@functools.cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    logger.info(f"compiling {function.__name__} for the GPU, once")
    return torch.compile(function, dynamic=True)


def is_on_gpu(tensor: Tensor) -> bool:
    """Does the tensor lie on a GPU of this machine, and not only pretend to, as a fake one does?"""
    return tensor.is_cuda and torch.cuda.is_available()


_without_compiler: set[Callable[..., Any]] = set()
"""Functions that could not be compiled here."""


def fused(function: Callable[..., Any], first: Tensor, *arguments: Any, **options: Any) -> Any:
    """`function(first, *arguments, out=…, **options)`, on a GPU as one compiled pass.

    `out` is the memory that the function may use: that of `first` where it runs as it is, and None
    where it is compiled. Without a compiler the function runs as it is, and the log says so.
    """
    if is_on_gpu(first) and function not in _without_compiler:
        try:
            return _compiled(function)(first, *arguments, **options, out=None)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # if it is not the compiler's, it comes again below
            reason = str(error).strip().partition("\n")[0]
            logger.warning(f"{function.__name__} is not compiled ({reason}); this costs time")
            _without_compiler.add(function)
    return function(first, *arguments, **options, out=first)
