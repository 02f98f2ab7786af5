"""Adaptive gradient partial scaling (Yu et al. 2021)."""

from typing import Any

import torch
from torch import Tensor
from typing_extensions import Unpack

from ..functional import Gates, agps_gates, tokens_from_rank, whole_counts
from .base import Gating, GatingOptions

# the paper's values for WikiText-103; for WMT14 it has 1500 and 400
DEFAULT_MU1, DEFAULT_MU2 = 500.0, 20.0


class AgpsGating(Gating):
    """Scales the gradient into rare tokens that are no target of the batch by their training
    counts.

    "In the batch" means in this micro-batch of this worker, so that several micro-batches on one
    worker train as one on each of several workers; the paper's batch has 8,192 tokens.

    Args:
        vocabulary: V.
        rare_rank: `rank` of `functional.tokens_from_rank`.
        counts: (V,) occurrences of each token as a target in the training set; None: `set_counts`
            follows.
        mu1: this, `mu2` and `variant` as of `functional.agps_gates`; by default the paper's for
            WikiText-103.
        mu2: see `mu1`.
        variant: see `mu1`.
        **options: as of `Gating`.

    Raises:
        ValueError: an option is out of its range.
    """

    counts: Tensor | None  # (V,) int64

    def __init__(
        self,
        vocabulary: int,
        *,
        rare_rank: int,
        counts: Tensor | None = None,
        mu1: float = DEFAULT_MU1,
        mu2: float = DEFAULT_MU2,
        variant: str = "eq15",
        **options: Unpack[GatingOptions],
    ) -> None:
        super().__init__(vocabulary, **options)
        tokens = vocabulary if self.excluded is None else int((~self.excluded).sum())
        if not 0 <= rare_rank < tokens:  # beyond that, no token would be rare
            raise ValueError(
                f"expected rare_rank in [0, {tokens}), as many tokens may be rare, got {rare_rank}"
            )
        self.rare_rank = rare_rank
        self.scaling: dict[str, Any] = {"mu1": mu1, "mu2": mu2, "variant": variant}
        self.register_buffer("counts", None, persistent=False)
        self._absent: Gates | None = None  # the gates of a batch without targets, once formed
        none = torch.zeros(vocabulary, dtype=torch.bool)
        agps_gates(none, none, none, **self.scaling)  # raises where an option is out of its range
        if counts is not None:
            self.set_counts(counts)

    def set_counts(self, counts: Tensor) -> None:
        """Takes the training counts (V,)."""
        self.counts, self._absent = whole_counts(counts, self.vocabulary), None

    def gates(self, target: Tensor | None) -> Gates:
        """The gates of the micro-batch. ValueError without counts."""
        if self.counts is None:
            raise ValueError(
                "found no training counts; expected them as `counts`, or by `set_counts`"
            )
        absent, device = self._absent, self.counts.device
        if absent is None or absent.rare.device != device:
            excluded = None if self.excluded is None else self.excluded.to(device)
            rare = tokens_from_rank(self.counts, self.rare_rank, excluded)
            absent = agps_gates(self.counts, torch.zeros_like(rare), rare, **self.scaling)
            self._absent = absent
        present = torch.zeros(self.vocabulary + 1, dtype=torch.bool, device=device)
        if target is not None:
            # What is ignored marks the last entry: to select the others would wait for a GPU.
            marked = target.masked_fill(target == self.ignore_index, self.vocabulary)
            present.index_fill_(0, marked.flatten(), True)
        scaled = (absent.g1, absent.g2)
        gates = [torch.where(present[:-1], 1.0, f) for f in scaled if f is not None]
        return Gates(absent.rare, *gates)
