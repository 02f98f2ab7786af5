"""Adaptive gradient gating over the updates of a training: counts, rare group and gates (Yu et al.
2022, Sec. 4)."""

import logging
from typing import Any

import torch
from torch import Tensor

from ..functional import Gates, agg_gates, rare_tokens
from ..functional.compiling import compiled
from ..modules import TokenCounter
from .base import Average, Objective

logger = logging.getLogger(__name__)

DEFAULT_ALPHA = 0.03  # appearances per update, at the paper's 32,768 tokens per update


class AggObjective(Objective):
    """Likelihood with the gradient into the embeddings of rare tokens gated by their recent
    appearances.

    The gates of an update are computed from the updates before it, and are the same for all its
    micro-batches and workers. The first update, with nothing in memory, is not gated.

    Args:
        vocabulary: V.
        alpha: as of `functional.rare_tokens`; 0.03 if `rare_fraction` is not given either.
        rare_fraction: as of `functional.rare_tokens`, instead of `alpha`.
        excluded: (V,) bool, tokens that are never rare, such as special ones.
        window: K >= 1, the number of updates over which appearances are counted.
        gates: "both", "g1" or "g2", see `functional.agg_gates`.
        count_current_batch: also count the micro-batches of the update so far, with a reduction
            over the workers for each; the first update is then gated too.
        **options: as of `Objective`.

    Examples:
        >>> objective = AggObjective(vocabulary=50, rare_fraction=0.2)
        >>> features, weight = torch.randn(2, 3, 8), torch.randn(50, 8, requires_grad=True)
        >>> target = torch.randint(50, (2, 3))
        >>> loss = objective(features, weight, target).loss / target.numel()
        >>> loss.backward(); objective.commit_update()
        >>> objective.counter.updates
        1
    """

    counter: TokenCounter
    excluded: Tensor | None  # (V,) bool
    static_rare: Tensor | None  # (V,) bool, the group that was fixed; None if none was

    def __init__(
        self,
        vocabulary: int,
        *,
        alpha: float | None = None,
        rare_fraction: float | None = None,
        excluded: Tensor | None = None,
        window: int = 1000,
        gates: str = "both",
        count_current_batch: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(vocabulary, **options)
        if alpha is not None and rare_fraction is not None:
            raise ValueError(
                f"found both alpha {alpha} and rare_fraction {rare_fraction}; drop one of them"
            )
        if alpha is None and rare_fraction is None:
            alpha = DEFAULT_ALPHA
        self.alpha, self.rare_fraction = alpha, rare_fraction
        self.which, self.count_current_batch = gates, count_current_batch
        self.counter = TokenCounter(vocabulary, window, self.ignore_index)
        self.register_buffer("excluded", excluded, persistent=False)
        self.register_buffer("static_rare", None, persistent=False)
        # The last gates, after the number of changes of the counts that they were formed of.
        self._formed: tuple[Any, Gates] | None = None
        if excluded is not None:
            self.to(excluded.device)
        # raises where an option is out of its range; not compiled, which would fail first
        _group_and_gates(self.counter.appearances, None, excluded, 1, alpha, rare_fraction, gates)

    def fix_group(self) -> None:
        """Keeps the group of rare tokens from here on, if the window is full (Table 9): before
        that, most tokens had no time to appear."""
        counter = self.counter
        is_full = counter.window is not None and counter.updates >= counter.window
        if self.static_rare is None and is_full:
            self.static_rare = self._form_gates(counter.appearances, counter.updates).rare
            self._formed = None
            number = int(self.static_rare.sum())
            logger.info(f"agg: the {number} rare tokens are fixed from here on")

    def gates(self, target: Tensor | None) -> Gates | None:
        """The gates by the updates in the window; with `count_current_batch`, the counts so far are
        one update more. None where there is no update."""
        appearances, updates = self.counter.appearances, self.counter.updates
        if self.count_current_batch:
            current = self.counter.current.clone()
            self.sum_over_workers(current)
            return self._form_gates(appearances + current, updates + 1)
        if not updates:
            return None
        # They are the same for all micro-batches of an update.
        key = self.counter.changes, appearances.device
        if self._formed is None or self._formed[0] != key:
            self._formed = key, self._form_gates(appearances, updates)
        return self._formed[1]

    def to_log(self, gates: Gates | None) -> dict[str, Average]:
        """The size of R, and its share of the vocabulary, in updates with gates."""
        if gates is None:
            return {}
        rare = gates.rare.sum()
        return {"rare_tokens": (rare, 1), "rare_share": (rare, self.vocabulary)}

    def _form_gates(self, appearances: Tensor, updates: int) -> Gates:
        """The gates from the appearances (V,) in so many updates, at least 1."""
        tensors = appearances, self.static_rare, self.excluded
        numbers = updates, self.alpha, self.rare_fraction, self.which
        return Gates(*compiled(_group_and_gates, tensors, numbers))

    def get_extra_state(self) -> tuple[dict[str, Any]]:
        """The fixed group, as indices; the counts are the state of the counter."""
        static = self.static_rare
        return ({"static_rare": None if static is None else static.nonzero().squeeze(1).cpu()},)

    def set_extra_state(self, state: tuple[dict[str, Any]]) -> None:
        """Restores what `get_extra_state` returned, from any device."""
        self.static_rare = self._formed = None
        if (static := state[0]["static_rare"]) is not None:
            none = torch.zeros_like(self.counter.appearances, dtype=torch.bool)
            self.static_rare = none.index_fill(0, static.to(none.device), True)


def _group_and_gates(
    appearances: Tensor,
    static_rare: Tensor | None,
    excluded: Tensor | None,
    updates: int,
    alpha: float | None,
    rare_fraction: float | None,
    which: str,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """R, `static_rare` or as `rare_tokens`, and g1 and g2 of `agg_gates`."""
    rare = static_rare
    if rare is None:
        threshold = {"alpha": alpha, "rare_fraction": rare_fraction}
        rare = rare_tokens(appearances, updates, excluded=excluded, **threshold)
    gates = agg_gates(appearances, updates, rare, which=which)
    return gates.rare, gates.g1, gates.g2
