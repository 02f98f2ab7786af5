"""How the tokens of an update are split over processes: the same number of them, whatever the number of GPUs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Batches:
    """What each process reads for an update.

    Args:
        processes: side by side.
        max_tokens: at most in a batch.
        update_freq: batches of a process per update.
    """

    processes: int
    max_tokens: int
    update_freq: int

    @property
    def tokens(self) -> int:
        """At most in an update."""
        return self.processes * self.max_tokens * self.update_freq


def split(tokens: int, processes: int, largest: int, block: int = 1) -> Batches:
    """Batches of so many tokens per update in all, or of as nearly so many as can be.

    As few batches per update as fit into `largest`; up to twice as many smaller ones, where their product is nearer.

    Args:
        tokens: of an update.
        processes: side by side.
        largest: tokens that a process may read at once.
        block: tokens of a batch are a multiple of it: the length of a language model's sequences.
    """
    fewest = max(1, -(-tokens // (processes * largest)))
    candidates = [
        Batches(processes, _nearest(tokens / (processes * number), block, largest), number)
        for number in range(fewest, 2 * fewest + 1)
    ]
    return min(candidates, key=lambda batches: (abs(batches.tokens - tokens), batches.update_freq))


def _nearest(tokens: float, block: int, largest: int) -> int:
    """The multiple of `block` nearest to a number of tokens, at least one and not above `largest`."""
    blocks = min(round(tokens / block), largest // block)
    return block * max(1, blocks)
