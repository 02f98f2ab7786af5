"""Adaptive gradient partial scaling over the batches of a training: training counts and gates (Yu et al. 2021)."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ..functional import Gates, agps_gates, tokens_from_rank
from ..functional.agps import DEFAULT_MU1, DEFAULT_MU2


class AgpsState(nn.Module):
    """Holds the training counts and the rare group, and forms the gates of each batch.

    Args:
        vocabulary: V.
        rare_rank, never_rare: `rank` and `never_rare` of `functional.tokens_from_rank`.
        mu1, mu2, variant: as of `functional.agps_gates`; the defaults are the paper's for WikiText-103.
        ignore_index: a target that is none.
    """

    counts: Tensor  # (V,) int64, occurrences of each token as a target in the training set
    rare: Tensor  # (V,) bool, R

    def __init__(
        self,
        vocabulary: int,
        *,
        rare_rank: int,
        mu1: float = DEFAULT_MU1,
        mu2: float = DEFAULT_MU2,
        variant: str = "eq15",
        never_rare: Tensor | None = None,
        ignore_index: int = -100,
    ) -> None:
        super().__init__()
        if not 0 <= rare_rank < vocabulary:
            raise ValueError(
                f"expected rare_rank in [0, {vocabulary}), the size of the vocabulary, got {rare_rank}; the paper's "
                f"27,000 of 40,624 sub-words (WMT14) are in proportion {round(27_000 / 40_624 * vocabulary)}"
            )
        self.rare_rank, self.ignore_index = rare_rank, ignore_index
        self.options: dict[str, Any] = {"mu1": mu1, "mu2": mu2, "variant": variant}
        self.register_buffer("never_rare", never_rare, persistent=False)
        self.register_buffer("counts", torch.zeros(vocabulary, dtype=torch.int64), persistent=False)
        self.register_buffer("rare", torch.zeros(vocabulary, dtype=torch.bool), persistent=False)
        agps_gates(self.counts, self.rare, self.rare, **self.options)  # raises where an option is out of its range

    def set_counts(self, counts: Tensor) -> None:
        """Takes the training counts (V,), and chooses the rare group by them."""
        if counts.shape != self.counts.shape:
            raise ValueError(f"expected counts of shape {tuple(self.counts.shape)}, got {tuple(counts.shape)}")
        self.counts = counts.to(self.counts)
        self.rare = tokens_from_rank(self.counts, self.rare_rank, self.never_rare)

    def gates(self, target: Tensor | None, any_worker: Callable[[Tensor], Any] | None = None) -> Gates:
        """f1 and f2 on the rare tokens that are no target of the batch.

        Args:
            target: of the batch, any shape; None for a batch that does not count (a dummy one).
            any_worker: takes the maximum of a (V,) uint8 tensor over the workers, in place.
        """
        vocabulary = len(self.counts)
        present = torch.zeros(vocabulary + 1, dtype=torch.uint8, device=self.counts.device)
        if target is not None:  # what is ignored marks the last entry: to select the others would wait for a GPU
            present.index_fill_(0, target.masked_fill(target == self.ignore_index, vocabulary).flatten(), 1)
        present = present[:vocabulary]
        if any_worker is not None:
            any_worker(present)
        return agps_gates(self.counts, present.bool(), self.rare, **self.options)
