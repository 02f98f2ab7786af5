"""How often each token was a target during the last K updates, exactly."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from .host_copy import HostCopy, to_device


class TokenCounter(nn.Module):
    """Token appearances over a sliding window of updates (the token counter memory of Yu et al. 2022, Sec. 4.1).

    An update goes through three steps, so that what is undone leaves no trace:

        counter.add(target)            # each micro-batch of the update
        counter.close(all_reduce)      # the update's tokens are complete: sum them over the workers
        counter.commit()               # the update took place; or counter.discard(): it was skipped

    The window holds one slot per update, as the distinct tokens and their counts: memory grows with the tokens in
    the window and not with K·V. Committing costs O(V + tokens of the update), whatever K is. The slots are kept on the
    CPU, and travel to and from a GPU without waiting for it. The state is part of `state_dict()`, tensors and numbers
    only.

    Args:
        vocabulary: V, the number of tokens.
        window: K >= 1, how many updates are remembered.
        ignore_index: an index that is not counted (padding); None counts all.

    Raises:
        ValueError: `vocabulary` or `window` below 1.

    Example:
        >>> counter = TokenCounter(vocabulary=4, window=2)
        >>> for tokens in ([0, 0, 3], [3], [1]):
        ...     counter.add(torch.tensor(tokens))
        ...     counter.commit()
        >>> counter.appearances.tolist(), counter.updates
        ([0, 1, 0, 1], 2)
    """

    appearances: Tensor
    """(V,) int64, a: the sum over the slots."""
    current: Tensor
    """(V,) int64: the tokens of the update under way, not yet in the window."""

    def __init__(self, vocabulary: int, window: int, ignore_index: int | None = None) -> None:
        super().__init__()
        if vocabulary < 1:
            raise ValueError(f"TokenCounter: expected a vocabulary of at least 1, got {vocabulary}")
        self.ignore_index = ignore_index
        self.register_buffer("appearances", torch.zeros(vocabulary, dtype=torch.int64), persistent=False)
        self.register_buffer("current", torch.zeros(vocabulary, dtype=torch.int64), persistent=False)
        self._slots: deque[tuple[Tensor, Tensor]] = deque()  # per update: tokens and counts, int32, on the CPU
        self._leaving: HostCopy | None = None  # the newest update, on its way there
        self.resize(window)

    @property
    def updates(self) -> int:
        """How many updates are in the window: at most K, fewer while it fills."""
        return len(self._slots) + (self._leaving is not None)

    def resize(self, window: int) -> None:
        """Sets K; a smaller one forgets the oldest updates.

        Raises:
            ValueError: `window` below 1.
        """
        if window < 1:
            raise ValueError(f"TokenCounter: expected a window of at least 1 update, got {window}")
        self.window = window
        self._evict()

    def add(self, tokens: Tensor) -> None:
        """Counts tokens, of any shape and in [0, V), into the update under way."""
        tokens = tokens.reshape(-1)
        ones = torch.ones_like(tokens, dtype=torch.int64)
        if self.ignore_index is not None:
            ones = (tokens != self.ignore_index).long()
        self.current.index_add_(0, tokens, ones)

    def close(self, reduce: Callable[[Tensor], Any] | None = None) -> None:
        """Completes the update under way: `reduce` sums its (V,) counts over the workers, in place."""
        if reduce is not None:
            reduce(self.current)

    def commit(self) -> None:
        """Moves the update under way into the window, and the oldest out of it where the window is full."""
        self._store_leaving()
        self._leaving = HostCopy(self.current)
        self.appearances += self.current
        self.current.zero_()
        self._evict()

    def _store_leaving(self) -> None:
        """Makes a slot of the newest update; a device had the whole time since then to hand it over."""
        if self._leaving is not None:
            counts, self._leaving = self._leaving.wait(), None
            tokens = counts.nonzero().squeeze(1)
            self._slots.append((tokens.int(), counts[tokens].int()))

    def discard(self) -> None:
        """Forgets the update under way (it was skipped)."""
        self.current.zero_()

    def _evict(self) -> None:
        while self.updates > self.window:
            tokens, counts = (to_device(t, self.appearances.device).long() for t in self._slots.popleft())
            self.appearances.index_add_(0, tokens, -counts)

    def __getstate__(self) -> dict[str, Any]:
        """For copies of the module, which cannot hold what is under way."""
        self._store_leaving()
        return self.__dict__

    def get_extra_state(self) -> dict[str, Any]:
        """The window and the update under way; the sums are rebuilt from them."""
        self._store_leaving()
        empty = torch.empty(0, dtype=torch.int32)
        tokens, counts = zip(*self._slots, strict=True) if self._slots else ((empty,), (empty,))
        return {
            "vocabulary": len(self.appearances),
            "window": self.window,
            "sizes": torch.tensor([len(slot[0]) for slot in self._slots], dtype=torch.int64),
            "tokens": torch.cat(tokens),
            "counts": torch.cat(counts),
            "current": self.current.cpu().clone(),
        }

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Restores what `get_extra_state` returned.

        Raises:
            ValueError: the state is that of another vocabulary, or none that a counter has saved.
        """
        _check_state(state, len(self.appearances))
        sizes = state["sizes"].tolist()
        slots = zip(state["tokens"].split(sizes), state["counts"].split(sizes), strict=True)
        self._slots = deque((tokens.clone(), counts.clone()) for tokens, counts in slots)  # no views of the whole
        self._leaving = None
        self.current.copy_(state["current"])
        self.appearances.zero_()
        self.appearances.index_add_(
            0, state["tokens"].to(self.appearances.device).long(), state["counts"].to(self.appearances.device).long()
        )
        self.resize(state["window"])


def _check_state(state: dict[str, Any], vocabulary: int) -> None:
    """Refuses a state that would restore something else than counts."""
    if not isinstance(state, dict):
        raise ValueError(f"TokenCounter: expected a state that it has saved, got {type(state).__name__}")
    if state.get("vocabulary") != vocabulary:
        raise ValueError(f"TokenCounter: expected a state over {vocabulary} tokens, got {state.get('vocabulary')}")
    sizes, tokens, counts, current = (state.get(name) for name in ("sizes", "tokens", "counts", "current"))
    are_numbers = all(_is_row_of_numbers(part) for part in (sizes, tokens, counts, current))
    if not are_numbers or (sizes < 0).any() or not int(sizes.sum()) == len(tokens) == len(counts):
        raise ValueError("TokenCounter: expected a state that it has saved, got slots that do not fit together")
    if len(current) != vocabulary or (current < 0).any() or (counts < 1).any():
        raise ValueError("TokenCounter: expected a state that it has saved, got numbers that are no counts")
    if len(tokens) and not 0 <= int(tokens.min()) <= int(tokens.max()) < vocabulary:
        raise ValueError(f"TokenCounter: expected tokens in [0, {vocabulary}), got others")
    if not isinstance(state.get("window"), int) or state["window"] < 1:
        raise ValueError(f"TokenCounter: expected a window of at least 1 update, got {state.get('window')!r}")


def _is_row_of_numbers(part: Any) -> bool:
    return isinstance(part, Tensor) and part.dim() == 1 and part.dtype in (torch.int32, torch.int64)
