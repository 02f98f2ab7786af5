"""Exact counts of each token over the last K updates."""

import zlib
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..functional.gates import check_targets
from ..functional.host_copy import HostCopy

MOST_SLOTS, MOST_LONG_SLOTS = 4096, 1024
"""Of a window; and of one that is longer than 4,096 updates, where four times as many slots would
take twice as many bytes."""


class TokenCounter(nn.Module):
    """Token appearances over a sliding window of updates (the token counter memory of Yu et al.
    2022, Sec. 4.1).

    An update goes through three steps, so that what is undone leaves no trace:

        counter.add(target)            # each micro-batch of the update
        all_reduce(counter.current)    # with several workers: sums its tokens over them
        counter.commit()               # the update took place; or counter.roll_back(): it was skipped

    The window holds one slot per update, with one byte or so per distinct token (`pack`), on the
    CPU, to which a GPU copies the counts while the next update runs. In a window of more than
    `most_slots` updates, each slot holds some, K / 1,024 or more, which are forgotten together.

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
    most_slots: int

    def __init__(self, vocabulary: int, window: int | None, ignore_index: int = -100) -> None:
        super().__init__()
        self.ignore_index = ignore_index
        self.changes = 0  # of `appearances` so far
        self.appearances = torch.zeros(vocabulary, dtype=torch.int64)
        self.current = torch.zeros_like(self.appearances)
        self.updates, self.most_slots = 0, MOST_SLOTS
        self._slots: deque[tuple[bytes, int]] = deque()  # packed counts, of so many updates
        self._open = torch.zeros(vocabulary if window else 0, dtype=torch.int64)  # on the CPU
        self._open_updates = 0  # whose sum is `_open`, the counts that are in no slot yet
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
        if not isinstance(window, int) or window < 1:
            raise ValueError(
                f"expected a window of at least 1 update, a whole number, got {window}"
            )
        self.window = window
        self._evict()

    def add(self, tokens: Tensor) -> None:
        """Counts tokens (...), int64 in [0, V) or `ignore_index`, into the update under way."""
        check_targets(tokens, len(self.current), self.ignore_index)
        tokens = tokens.reshape(-1)
        counted = (tokens != self.ignore_index).long()
        # a token that is not counted adds 0 to the first one
        self.current.index_add_(0, tokens * counted, counted)

    def commit(self) -> None:
        """Moves the update under way into the window, and the oldest out of a full one."""
        if self._arriving is not None:
            self._store_arrived()
        if self.window is not None:
            self.updates += 1
            if self.current.is_cuda:
                self._arriving = HostCopy(self.current)
            else:
                self._store(self.current, 1)
        self.appearances += self.current
        self.changes += 1
        self.current.zero_()
        self._evict()

    def roll_back(self) -> None:
        """Forgets the update under way."""
        self.current.zero_()

    def _store_arrived(self) -> None:
        """Stores the counts of the last update, once they are on the CPU."""
        if self._arriving is not None:
            self._store(self._arriving.read(), 1)
            self._arriving = None

    def _store(self, counts: Tensor, updates: int, *, closes: bool = False) -> None:
        """Adds the counts of some updates to those that are in no slot, and makes a slot of them if
        they are enough, or if it `closes`."""
        self._open += counts
        self._open_updates += updates
        window, slots = self.window or 1, self.most_slots
        if window > slots:
            slots = min(slots, MOST_LONG_SLOTS)
        if closes or self._open_updates >= -(-window // slots):
            self._slots.append((pack(self._open), self._open_updates))
            self._open.zero_()
            self._open_updates = 0

    def _evict(self) -> None:
        while self.window is not None and self.updates > self.window:
            if not self._slots:
                self._store(torch.zeros_like(self._open), 0, closes=True)
            packed, updates = self._slots.popleft()
            self.updates -= updates
            self.changes += 1
            self._add(unpack(packed), sign=-1)

    def _add(self, counted: Tensor, sign: int = 1) -> None:
        """Adds what `unpack` returned to the sums; a GPU copies it without waiting."""
        counted = counted.pin_memory() if self.appearances.is_cuda else counted
        tokens, counts = counted.to(self.appearances.device, non_blocking=True)
        self.appearances.index_add_(0, tokens, counts, alpha=sign)

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
        slots = [*self._slots]
        if self._open_updates:
            slots.append((pack(self._open), self._open_updates))
        packed = np.frombuffer(b"".join(slot for slot, _ in slots), np.uint8)
        window = {
            "slots": torch.from_numpy(packed.copy()),
            "bytes": torch.tensor([len(slot) for slot, _ in slots], dtype=torch.int64),
            "updates": torch.tensor([updates for _, updates in slots], dtype=torch.int64),
        }
        return (state | window,)

    def set_extra_state(self, saved: tuple[dict[str, Any]]) -> None:
        """Restores a state of `get_extra_state` from any device; the window K stays that of this
        counter.

        ValueError for another vocabulary, or if only one of the two has a window.
        """
        (state,) = saved
        size = len(self.appearances)
        if state["vocabulary"] != size:
            found = state["vocabulary"]
            raise ValueError(f"TokenCounter: expected a state over {size} tokens, got {found}")
        if (state["window"] is None) != (self.window is None):
            found = state["window"]
            raise ValueError(f"TokenCounter: expected the window {self.window}, got {found}")
        self._slots.clear()
        self._open.zero_()
        self.changes += 1
        self._arriving, self._open_updates, self.updates = None, 0, 0
        self.current.copy_(state["current"])
        if state["window"] is None:
            self.appearances.copy_(state["appearances"])
            return
        self.appearances.zero_()
        for packed, updates in saved_slots(state):
            self._slots.append((packed, updates))
            self._add(unpack(packed))
            self.updates += updates
        if self._slots:  # the last one may have room
            packed, updates = self._slots.pop()
            self._store(torch.zeros_like(self._open).index_add_(0, *unpack(packed)), updates)
        self._evict()


def saved_slots(state: dict[str, Any]) -> list[tuple[bytes, int]]:
    """The slots of a window in the state of a counter, each packed, of so many updates."""
    saved, ends = state["slots"].cpu().numpy().tobytes(), state["bytes"].cumsum(0).tolist()
    slots = [saved[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]
    return list(zip(slots, state["updates"].tolist(), strict=True))


def pack(counts: Tensor) -> bytes:
    """Counts (V,) int64 below 2^31, on the CPU, as bytes: for the tokens that have any, how far
    each is from the one before, and its count, as int32 whose first bytes come first, then their
    second ones and so on, so that nearly all that is left to compress are runs of zeros."""
    tokens = np.flatnonzero(counts.numpy())
    numbers = np.stack([np.diff(tokens, prepend=0), counts.numpy()[tokens]]).astype("<i4")
    planes = numbers.view(np.uint8).reshape(2, len(tokens), 4).transpose(0, 2, 1)
    packer = zlib.compressobj(1, strategy=zlib.Z_RLE)
    return packer.compress(planes.tobytes()) + packer.flush()


def unpack(packed: bytes) -> Tensor:
    """The tokens and their counts, (2, n) int64, of what `pack` returned."""
    planes = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(2, 4, -1)
    numbers = np.ascontiguousarray(planes.transpose(0, 2, 1)).view("<i4").reshape(2, -1)
    counted = numbers.astype(np.int64)
    counted[0].cumsum(out=counted[0])  # the distances
    return torch.from_numpy(counted)
