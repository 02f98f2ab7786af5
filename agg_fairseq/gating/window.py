"""Rules by the appearances of tokens in a window of updates: counts, rare group, and when the gates
are formed."""

import logging
from typing import Any

import torch
from torch import Tensor
from typing_extensions import Unpack

from ..functional import Gates, rare_tokens
from ..modules import TokenCounter
from .base import Gating, GatingOptions

logger = logging.getLogger(__name__)

DEFAULT_ALPHA = 0.03  # appearances per update, at the paper's 32,768 tokens per update
DEFAULT_WINDOW = 1000  # updates, until the length of an epoch is known


class WindowOptions(GatingOptions, total=False):
    """The options of every rule by the appearances in a window, as of `WindowGating`."""

    alpha: float | None
    rare_fraction: float | None
    window: int | None
    static_after_epoch: int
    count_current_batch: bool


class WindowGating(Gating):
    """Gates the gradient into the embeddings of rare tokens by their recent appearances. A subclass
    defines `form_gates`, which says how much.

    The gates of an update are formed from the updates before it, and are the same for all its
    micro-batches and workers. The first update, with nothing in memory, is not gated.

    Args:
        vocabulary: V.
        alpha: as of `functional.rare_tokens`; 0.03 if `rare_fraction` is not given either.
        rare_fraction: as of `functional.rare_tokens`, instead of `alpha`.
        window: K >= 1, the number of updates over which appearances are counted; None is one epoch,
            as `start_epoch` tells, and 1,000 until then.
        static_after_epoch: keep the rare group fixed after this epoch, as `start_epoch` tells, once
            the window is full (before that, most tokens had no time to appear); 0: never (Yu et al.
            2022, Table 9).
        count_current_batch: also count the micro-batches of the update so far, with a reduction
            over the workers for each; the first update is then gated too.
        **options: as of `Gating`.

    Raises:
        ValueError: an option is out of its range.
    """

    counter: TokenCounter
    static_rare: Tensor | None  # (V,) bool, the group that was fixed; None if none was

    def __init__(
        self,
        vocabulary: int,
        *,
        alpha: float | None = None,
        rare_fraction: float | None = None,
        window: int | None = None,
        static_after_epoch: int = 0,
        count_current_batch: bool = False,
        **options: Unpack[GatingOptions],
    ) -> None:
        super().__init__(vocabulary, **options)
        if alpha is None and rare_fraction is None:
            alpha = DEFAULT_ALPHA
        if static_after_epoch < 0:
            raise ValueError(f"expected static_after_epoch of at least 0, got {static_after_epoch}")
        self.threshold: dict[str, Any] = {"alpha": alpha, "rare_fraction": rare_fraction}
        self.static_after_epoch, self.count_current_batch = static_after_epoch, count_current_batch
        self.epoch, self.takes_epoch = 1, window is None
        window = DEFAULT_WINDOW if window is None else window
        self.counter = TokenCounter(vocabulary, window, self.ignore_index)
        self.register_buffer("static_rare", None, persistent=False)
        # The last gates, and the number of changes and device of the counts they were formed from.
        self._formed: tuple[Any, Gates] | None = None
        rare_tokens(self.counter.appearances, 1, **self.threshold)  # raises out of the range
        if self.excluded is not None:
            self.to(self.excluded.device)

    def form_gates(self, appearances: Tensor, updates: int, rare: Tensor) -> Gates:
        """The gates on the rare tokens (V,) that appeared `appearances` (V,) times in the
        `updates` of the window, at least 1."""
        raise NotImplementedError

    def start_epoch(self, epoch: int, updates: int) -> None:
        """Sets the window, unless it was given."""
        self.epoch = epoch
        if self.takes_epoch:
            self.counter.resize(updates)

    def gates(self, target: Tensor | None) -> Gates | None:
        """The gates by the updates in the window; with `count_current_batch`, the counts so far are
        one update more. None where there is no update."""
        counter = self.counter
        appearances, updates = counter.appearances, counter.updates
        # the same for all micro-batches of an update
        key: Any = (counter.changes, appearances.device)
        if self.count_current_batch:
            current, key = counter.current.clone(), None
            self.sum_over_workers(current)
            appearances, updates = appearances + current, updates + 1
        if not updates:
            return None
        if key is None or self._formed is None or self._formed[0] != key:
            rare = self.static_rare
            if rare is None:
                rare = rare_tokens(appearances, updates, **self.threshold, excluded=self.excluded)
                is_full = counter.updates >= (counter.window or 1)
                if is_full and 0 < self.static_after_epoch < self.epoch:
                    self.static_rare = rare
                    logger.info(f"the {int(rare.sum())} rare tokens are fixed from here on")
            self._formed = key, self.form_gates(appearances, updates, rare)
        return self._formed[1]

    def get_extra_state(self) -> tuple[dict[str, Any]]:
        """The fixed group, as indices; the counts are the state of the counter."""
        static = self.static_rare
        return ({"static_rare": None if static is None else static.nonzero().squeeze(1).cpu()},)

    def set_extra_state(self, state: tuple[dict[str, Any]]) -> None:
        """Restores what `get_extra_state` returned, from any device; a fixed group only if one is
        wanted."""
        self.static_rare = self._formed = None
        if self.static_after_epoch and (static := state[0]["static_rare"]) is not None:
            none = torch.zeros_like(self.counter.appearances, dtype=torch.bool)
            self.static_rare = none.index_fill(0, static.to(none.device), True)
