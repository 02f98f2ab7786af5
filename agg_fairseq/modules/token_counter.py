"""Exact counts of each token over the last K updates."""

from collections import deque
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ..functional.host_copy import HostCopy


class TokenCounter(nn.Module):
    """Token appearances over a sliding window of updates (the token counter memory of Yu et al.
    2022, Sec. 4.1).

    An update goes through three steps, so that what is undone leaves no trace:

        counter.add(target)            # each micro-batch of the update
        all_reduce(counter.current)    # with several workers: sums its tokens over them
        counter.commit()               # the update took place; or counter.roll_back(): it was skipped

    The window holds one slot per update, as the distinct tokens and their counts, on the CPU, to
    which a GPU copies them while the next update runs. With `most_slots`, each holds
    K / most_slots updates, which are forgotten together: memory is then bounded, whatever the text.

    Args:
        vocabulary: V, the number of tokens.
        window: K >= 1, how many updates are remembered; None: all of them, without slots.
        ignore_index: a target that is not counted, as in the losses.

    Examples:
        >>> counter = TokenCounter(vocabulary=4, window=2)
        >>> for tokens in ([0, 0, 3], [3], [1]):
        ...     counter.add(torch.tensor(tokens))
        ...     counter.commit()
        >>> counter.appearances.tolist(), counter.updates
        ([0, 1, 0, 1], 2)
    """

    appearances: Tensor  # (V,) int64, a: the sum over the window
    current: Tensor  # (V,) int64: the tokens of the update under way, not yet in the window
    # No buffers: DistributedDataParallel replaces those by the ones of the first worker.
    updates: int  # in the window, at most K; 0 without a window
    window: int | None  # K
    most_slots: int | None  # which hold K / most_slots updates each; None: one update in each

    def __init__(self, vocabulary: int, window: int | None, ignore_index: int = -100) -> None:
        super().__init__()
        self.ignore_index = ignore_index
        self.appearances = torch.zeros(vocabulary, dtype=torch.int64)
        self.current = torch.zeros_like(self.appearances)
        self.updates, self.most_slots = 0, None
        # tokens and counts, int32, on the CPU; and the number of updates
        self._slots: deque[tuple[Tensor, Tensor, int]] = deque()
        self._arriving: HostCopy | None = None  # counts (V,) of the last update
        self.window = window
        if window is not None:
            self.resize(window)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "TokenCounter":
        """Moves the counts as well, which are no buffers."""
        self.appearances, self.current = fn(self.appearances), fn(self.current)
        return super()._apply(fn, recurse)

    def resize(self, window: int) -> None:
        """Sets K >= 1; a smaller one forgets the oldest updates."""
        if window < 1:
            raise ValueError(f"TokenCounter: expected a window of at least 1 update, got {window}")
        self.window = window
        self._evict()

    def add(self, tokens: Tensor) -> None:
        """Counts tokens (...), int64 in [0, V) or `ignore_index`, into the update under way."""
        tokens = tokens.reshape(-1)
        counted = (tokens != self.ignore_index).long()
        # a token that is not counted adds 0 to the first one
        self.current.index_add_(0, tokens * counted, counted)

    def commit(self) -> None:
        """Moves the update under way into the window, and the oldest out of a full one."""
        self._store_arrived()
        if self.window is not None:
            self.updates += 1
            self._arriving = HostCopy(self.current.clone())
        self.appearances += self.current
        self.current.zero_()
        self._evict()

    def roll_back(self) -> None:
        """Forgets the update under way."""
        self.current.zero_()

    def _store_arrived(self) -> None:
        """Puts the counts of the last update into a slot, once they are on the CPU."""
        if self._arriving is None or self.window is None:
            return
        counts = self._arriving.read()
        updates, most = 1, 1 if self.most_slots is None else -(-self.window // self.most_slots)
        if self._slots and self._slots[-1][2] < most:
            tokens, last, before = self._slots.pop()
            counts.index_add_(0, tokens.long(), last.long())
            updates += before
        tokens = counts.nonzero().squeeze(1)
        self._slots.append((tokens.int(), counts[tokens].int(), updates))
        self._arriving = None

    def _evict(self) -> None:
        while self.window is not None and self.updates > self.window:
            tokens, counts, updates = self._slots.popleft()
            self.updates -= updates
            self.appearances.index_add_(0, self._on_device(tokens), -self._on_device(counts))

    def _on_device(self, part: Tensor) -> Tensor:
        """A part of a slot as int64 on the counter's device, copied without waiting."""
        on_gpu = self.appearances.is_cuda
        part = part.pin_memory() if on_gpu else part
        return part.to(self.appearances.device, non_blocking=on_gpu).long()

    def __getstate__(self) -> dict[str, Any]:
        """For a copy or a pickle, which has nothing on its way from a GPU."""
        self._store_arrived()
        return vars(self)

    def get_extra_state(self) -> tuple[dict[str, Any]]:
        """The window, or without one the sums, and the update under way; in a tuple, since
        torch.distributed.checkpoint expects tensors of the same sizes in a dictionary."""
        self._store_arrived()
        state = {
            "vocabulary": len(self.appearances),
            "window": self.window,
            "current": self.current.cpu().clone(),
        }
        if self.window is None:
            return (state | {"appearances": self.appearances.cpu().clone()},)
        empty = torch.empty(0, dtype=torch.int32)
        window = {
            "sizes": torch.tensor([len(slot[0]) for slot in self._slots], dtype=torch.int64),
            "updates": torch.tensor([slot[2] for slot in self._slots], dtype=torch.int64),
            "tokens": torch.cat([empty, *(slot[0] for slot in self._slots)]),
            "counts": torch.cat([empty, *(slot[1] for slot in self._slots)]),
        }
        return (state | window,)

    def set_extra_state(self, state: Any) -> None:
        """Restores a state of `get_extra_state`, its window included, from any device.

        ValueError for another vocabulary, or if only one of the two has a window.
        """
        if isinstance(state, tuple):  # not in older checkpoints
            (state,) = state
        size = len(self.appearances)
        if state["vocabulary"] != size:
            found = state["vocabulary"]
            raise ValueError(f"TokenCounter: expected a state over {size} tokens, got {found}")
        if (state["window"] is None) != (self.window is None):
            found = state["window"]
            raise ValueError(f"TokenCounter: expected the window {self.window}, got {found}")
        self._slots.clear()
        self._arriving = None
        self.current.copy_(state["current"])
        if state["window"] is None:
            self.appearances.copy_(state["appearances"])
            return
        tokens, counts = state["tokens"].cpu(), state["counts"].cpu()
        sizes = state["sizes"].tolist()
        updates = state["updates"].tolist() if "updates" in state else [1] * len(sizes)
        self.updates = sum(updates)
        slots = zip(tokens.split(sizes), counts.split(sizes), updates, strict=True)
        for of_tokens, of_counts, number in slots:  # copies, no views of the whole
            self._slots.append((of_tokens.clone(), of_counts.clone(), number))
        self.appearances.zero_()
        self.appearances.index_add_(0, self._on_device(tokens), self._on_device(counts))
        self.resize(state["window"])
