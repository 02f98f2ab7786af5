"""Reading the parts of a criterion's state in a checkpoint, which may be damaged."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def counts_in(state: dict[str, Any], name: str, vocabulary: int) -> Tensor:
    """(V,) int64, not negative.

    Raises:
        ValueError: it is something else.
    """
    found = state.get(name)
    if not _is_whole(found) or found.shape != (vocabulary,) or (found < 0).any():
        raise ValueError(f"expected {name} to be the counts of {vocabulary} tokens, got something else")
    return found


def tokens_in(state: dict[str, Any], name: str, vocabulary: int) -> Tensor | None:
    """(n,) int64 in [0, V), or None.

    Raises:
        ValueError: it is something else.
    """
    found = state.get(name)
    if found is not None and not (
        _is_whole(found) and found.dim() == 1 and ((0 <= found) & (found < vocabulary)).all()
    ):
        raise ValueError(f"expected {name} to be tokens in [0, {vocabulary}), got something else")
    return found


def update_in(state: dict[str, Any], name: str) -> int | None:
    """The number of an update, or None.

    Raises:
        ValueError: it is something else.
    """
    found = state.get(name)
    if found is not None and not isinstance(found, int):
        raise ValueError(f"expected {name} to be the number of an update, got {type(found).__name__}")
    return found


def _is_whole(found: Any) -> bool:
    return isinstance(found, Tensor) and found.dtype == torch.int64
