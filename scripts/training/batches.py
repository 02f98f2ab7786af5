"""How the tokens of an update are divided among processes."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Any

from agg_fairseq.errors import UserError

SIZES = ("dataset.max_tokens", "optimization.update_freq")


@dataclass(frozen=True)
class Batches:
    """What each process reads for an update."""

    processes: int  # side by side
    max_tokens: int  # largest number of tokens in a batch
    update_freq: int  # batches of a process per update

    @property
    def tokens(self) -> int:
        """Largest number of tokens in an update."""
        return self.processes * self.max_tokens * self.update_freq

    def __str__(self) -> str:
        """As messages say it."""
        return f"{self.tokens:,} tokens per update = {self.processes} x {self.max_tokens:,} x {self.update_freq}"


def batches_of(config: Any, processes: int, given: Container[str] = ()) -> Batches:
    """The tokens per update of a configuration for one process, divided among several.

    Args:
        processes: number of processes side by side.
        given: options that the user gave. Those of `SIZES` apply to each process, and nothing is divided.
    """
    tokens, frequencies = config.dataset.max_tokens, config.optimization.update_freq
    if tokens is None or len(frequencies) != 1:
        raise UserError(
            f"found dataset.max_tokens={tokens}, optimization.update_freq={frequencies}; expected a number of tokens, "
            "and one of batches"
        )
    if any(size in given for size in SIZES):
        return Batches(processes, tokens, frequencies[0])
    return split(tokens * frequencies[0], processes, tokens, config.task.get("tokens_per_sample") or 1)


def split(tokens: int, processes: int, largest: int, block: int = 1) -> Batches:
    """Batches whose tokens per update are as near as possible to a given number, whatever the number of processes.

    An update has as few batches as fit into `largest`, or up to twice as many smaller ones if these come nearer.

    Args:
        largest: tokens that a process can read at once.
        block: the tokens of a batch are a multiple of it: the length of a language model's sequences.
    """
    fewest = max(1, -(-tokens // (processes * largest)))
    candidates = []
    for number in range(fewest, 2 * fewest + 1):
        blocks = min(round(tokens / (processes * number) / block), largest // block)
        candidates.append(Batches(processes, block * max(1, blocks), number))
    return min(candidates, key=lambda batches: (abs(batches.tokens - tokens), batches.update_freq))
