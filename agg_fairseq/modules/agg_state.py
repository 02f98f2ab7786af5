"""Adaptive gradient gating over the updates of a training: counts, rare group and gates (Yu et al. 2022, Sec. 4)."""

import logging
from typing import Any

import torch
from torch import Tensor, nn

from ..functional import Gates, agg_gates, rare_tokens
from ..functional.agg import DEFAULT_ALPHA
from .token_counter import TokenCounter

logger = logging.getLogger(__name__)


class AggState(nn.Module):
    """Counts the targets of the updates, and forms the gates of each update from those before it.

        state.counter.begin(number)      # where updates are numbered; see `TokenCounter` for both ways
        state.set_gates()                # at the start of an update: `state.gates` is the same for its micro-batches
        state.counter.add(target)        # each micro-batch
        state.counter.close(all_reduce)  # the update is complete

    The first update, with nothing in memory, is not gated. A warning is logged, once, if most of the vocabulary is rare
    when the window is full.

    Args:
        vocabulary: V.
        alpha, rare_fraction, never_rare: as of `functional.rare_tokens`; by default, alpha is 0.03.
        window: K >= 1, in updates.
        ignore_index: target value that is not counted.
        gates: "both", "g1", "g2" or "faded", see `functional.agg_gates`.
    """

    counter: TokenCounter
    gates: Gates | None  # of the update under way; None if it is not gated
    never_rare: Tensor | None  # (V,) bool
    static_rare: Tensor | None  # (V,) bool, the group that `fix_group` has fixed; None if it has not

    def __init__(
        self,
        vocabulary: int,
        *,
        alpha: float | None = None,
        rare_fraction: float | None = None,
        window: int = 1000,
        gates: str = "both",
        never_rare: Tensor | None = None,
        ignore_index: int = -100,
    ) -> None:
        super().__init__()
        if alpha is not None and rare_fraction is not None:
            raise ValueError(f"found both alpha {alpha} and rare_fraction {rare_fraction}; drop one of them")
        by_rate = {"alpha": DEFAULT_ALPHA if alpha is None else alpha}
        self.threshold = by_rate if rare_fraction is None else {"rare_fraction": rare_fraction}
        self.which = gates
        self.counter = TokenCounter(vocabulary, window, ignore_index)
        self.register_buffer("never_rare", never_rare, persistent=False)
        self.register_buffer("static_rare", None, persistent=False)
        self._warned = False
        self._gates_from(self.counter.appearances, 1)  # raises where an option is out of its range
        self.gates = None

    def set_gates(self, current: Tensor | None = None) -> None:
        """Forms the gates from the window, and from (V,) tokens of the update under way, over all workers, if given."""
        appearances, updates = self.counter.appearances, self.counter.updates
        if current is not None:
            appearances, updates = appearances + current, updates + 1
        self.gates = self._gates_from(appearances, updates) if updates else None
        if self.has_full_window and not self._warned:
            self._warned = True
            share = int(self.gates.rare.sum()) / len(self.gates.rare)  # waits for a GPU, once per training
            if share > 0.5 and self.which != "faded":  # those hold back only the rarest of the group
                logger.warning(
                    f"agg: {share:.0%} of the vocabulary is rare, which costs the other tokens perplexity; lower "
                    "agg_alpha, or set agg_rare_fraction (0.05 to 0.3)"
                )

    @property
    def has_full_window(self) -> bool:
        """Are there as many updates in memory as the window has? Before, most tokens had no time to appear."""
        return self.counter.updates >= self.counter.window

    def fix_group(self) -> None:
        """Keeps the group of rare tokens as it is now, in all updates to come (Table 9)."""
        self.static_rare = self._rare(self.counter.appearances, self.counter.updates)
        logger.info(f"agg: the {int(self.static_rare.sum())} rare tokens are fixed from here on")

    def _rare(self, appearances: Tensor, updates: int) -> Tensor:
        """(V,) bool, R."""
        if self.static_rare is not None:
            return self.static_rare
        return rare_tokens(appearances, updates, never_rare=self.never_rare, **self.threshold)

    def _gates_from(self, appearances: Tensor, updates: int) -> Gates:
        """The gates from the appearances (V,) in so many updates, at least 1."""
        rare = self._rare(appearances, updates)
        return agg_gates(appearances, updates, rare, which=self.which, alpha=self.threshold.get("alpha"))

    def checkpoint_state(self) -> dict[str, Any]:
        """What a training needs to go on exactly from here: tensors and plain values, on the CPU."""
        static = None if self.static_rare is None else self.static_rare.nonzero().squeeze(1).cpu()
        counter = self.counter
        return {"counter": counter.get_extra_state(), "open_update": counter.open_update, "static_rare": static}

    def load_checkpoint_state(self, state: dict[str, Any]) -> None:
        """Restores what `checkpoint_state` returned. Whether its last update took place shows in the next `begin`."""
        self.counter.set_extra_state(state["counter"])
        self.counter.open_update, static = state.get("open_update"), state.get("static_rare")
        self.static_rare = None
        if static is not None:
            self.static_rare = torch.zeros_like(self.counter.appearances, dtype=torch.bool)
            self.static_rare[static.to(self.static_rare.device)] = True
