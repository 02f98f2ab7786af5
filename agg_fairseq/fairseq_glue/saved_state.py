"""The parts of a criterion's state in a checkpoint, checked as they are read."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def counts_in(state: dict[str, Any], name: str, vocabulary: int) -> Tensor:
    """The entry `name` of a criterion's state, if it is (V,) int64 and not negative.

    Raises:
        ValueError: it is something else, as in a damaged checkpoint.
    """
    found = state.get(name)
    is_counts = isinstance(found, Tensor) and found.dtype == torch.int64 and found.shape == (vocabulary,)
    if not is_counts or (found < 0).any():
        raise ValueError(f"expected {name} to be the counts of {vocabulary} tokens, got something else")
    return found


def tokens_in(state: dict[str, Any], name: str, vocabulary: int) -> Tensor | None:
    """The entry `name` of a criterion's state, if it is (n,) int64 in [0, V), or None.

    Raises:
        ValueError: it is something else, as in a damaged checkpoint.
    """
    found = state.get(name)
    is_row = isinstance(found, Tensor) and found.dtype == torch.int64 and found.dim() == 1
    if found is not None and not (is_row and ((0 <= found) & (found < vocabulary)).all()):
        raise ValueError(f"expected {name} to be tokens in [0, {vocabulary}), got something else")
    return found


def update_in(state: dict[str, Any], name: str) -> int | None:
    """The entry `name` of a criterion's state, if it is the number of an update, or None.

    Raises:
        ValueError: it is something else, as in a damaged checkpoint.
    """
    found = state.get(name)
    if found is not None and not isinstance(found, int):
        raise ValueError(f"expected {name} to be the number of an update, got {type(found).__name__}")
    return found
