"""Functions of tensors that a GPU runs by `torch.compile`."""

import functools
import logging
from collections.abc import Callable
from typing import Any

import torch

logger = logging.getLogger(__name__)

_not_compiled: set[Callable[..., Any]] = set()


def compiled(
    function: Callable[..., Any], tensors: tuple[Any, ...], numbers: tuple[Any, ...] = ()
) -> Any:
    """`function(*tensors, *numbers)`, on a GPU by `torch.compile` if that works."""
    first = tensors[0]
    if first.is_cuda and torch.cuda.is_available() and function not in _not_compiled:
        try:
            return _compile(function)(*tensors, *numbers)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # if it is not the compiler's, it comes again below
            _not_compiled.add(function)
            say_failed("torch.compile", error)
    return function(*tensors, *numbers)


@functools.cache
def _compile(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, dynamic=True)


def say_failed(compiler: str, error: Exception) -> None:
    """Logs that a compiler is missing or fails, and why."""
    reason = str(error).strip().partition("\n")[0]
    logger.warning(f"the loss runs without {compiler}, and slower: {reason}")
