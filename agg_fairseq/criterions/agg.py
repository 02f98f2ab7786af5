"""`--criterion agg`: adaptive gradient gating (Yu et al. 2022)."""

import logging
import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, List, Optional

import torch
from fairseq.dataclass import ChoiceEnum
from omegaconf import II
from torch import Tensor

from ..errors import fail
from ..functional import CrossEntropyOutput, Gates, agg_gates, rare_tokens
from ..functional.agg import GATES, check_open_interval
from ..modules import TokenCounter
from ..workers import summed_over_workers
from .base import Measure, special_tokens
from .checkpoint_parts import tokens_in, update_in
from .penalties import PenalizedCriterion, PenalizedCriterionConfig
from .registration import register

logger = logging.getLogger(__name__)

DEFAULT_ALPHA = 0.03


@dataclass
class AggCriterionConfig(PenalizedCriterionConfig):
    """Options of `--criterion agg`."""

    agg_alpha: float = field(
        default=DEFAULT_ALPHA,
        metadata={
            "help": "a token is rare if it appears fewer than this many times per update, in (0, 1). Rescale it with "
            "the tokens per update and the corpus, or use --agg-rare-fraction, which needs no rescaling"
        },
    )
    agg_rare_fraction: Optional[float] = field(  # noqa: UP045 — fairseq reads the annotation
        default=None,
        metadata={
            "help": "instead of --agg-alpha: the fraction of the vocabulary that is rare at every update, in (0, 1)"
        },
    )
    agg_window: int = field(
        default=0, metadata={"help": "updates K over which appearances are counted; 0: the updates of one epoch"}
    )
    agg_count_current_batch: bool = field(
        default=False,
        metadata={
            "help": "also count the current batch, and the update's batches before it, as the authors' code does; "
            "costs a reduction over the workers per batch"
        },
    )
    agg_gates: ChoiceEnum(GATES) = field(  # type: ignore[valid-type]
        default="both",
        metadata={
            "help": "which gates to use: both; g1 or g2 alone (the paper's Table 8); faded: a g1 that meets 1 at the "
            "threshold; continuous: each rare token against the rare target itself, in place of g2"
        },
    )
    agg_static_after_epoch: int = field(
        default=0,
        metadata={"help": "keep the group of rare tokens fixed after this epoch (the paper's Table 9); 0: never"},
    )
    update_freq: List[int] = II("optimization.update_freq")
    skip_remainder_batch: bool = II("optimization.skip_remainder_batch")


@register("agg", dataclass=AggCriterionConfig)
class AggCriterion(PenalizedCriterion):
    """Likelihood with the gradient into the embeddings of rare tokens gated by their recent appearances.

    Counts the targets of the previous K updates over all workers; the gates of an update are fixed at its start, the
    same for each of its micro-batches. The first update, with nothing in memory, is not gated.
    """

    name: ClassVar[str] = "agg"
    averages: ClassVar[dict[str, int]] = PenalizedCriterion.averages | {"rare_tokens": 1, "rare_share": 4}

    def __init__(self, cfg: AggCriterionConfig, task: Any) -> None:
        super().__init__(cfg, task)
        _check_options(cfg)
        self.register_buffer("never_rare", special_tokens(task.target_dictionary), persistent=False)
        self.register_buffer("static_rare", None, persistent=False)
        self.counter = TokenCounter(self.vocabulary, max(cfg.agg_window, 1), ignore_index=self.padding_idx)
        self._open_update: int | None = None  # the update whose tokens are in the counter, but not yet in its window
        self._gates: Gates | None = None
        self._warned = False

    def begin_update(self, update_num: int) -> None:
        """The previous update enters the window if it took place, and the gates of this one are set."""
        super().begin_update(update_num)
        self._settle_previous_update(update_num)
        self.counter.resize(self._window())
        self._fix_group_if_due()
        self._gates = self._current_gates(self.counter.appearances, self.counter.updates)
        self._warn_if_large()

    def _settle_previous_update(self, update_num: int) -> None:
        if self._open_update is None:
            logger.info(f"agg: the window of token counts starts empty at update {update_num}")
        elif update_num > self._open_update:
            self.counter.commit()
        else:  # the same number again: the gradient overflowed and fairseq skipped the update
            self.counter.discard()
        self._open_update = update_num

    def _window(self) -> int:
        """K: as given, or the updates of the present epoch."""
        if self.cfg.agg_window:
            return self.cfg.agg_window
        if self.train_iterator is None:
            fail("--criterion agg: found no training data to take the length of an epoch from; give --agg-window K")
        frequencies = self.cfg.update_freq
        updates = len(self.train_iterator) / frequencies[min(self._epoch(), len(frequencies)) - 1]
        return max(1, math.floor(updates) if self.cfg.skip_remainder_batch else math.ceil(updates))

    def _epoch(self) -> int:
        return max(1, self.train_iterator.epoch) if self.train_iterator is not None else 1

    def _fix_group_if_due(self) -> None:
        last = self.cfg.agg_static_after_epoch
        if last and self.static_rare is None and self._epoch() > last and self._window_is_full():
            self.static_rare = self._rare(self.counter.appearances, self.counter.updates)
            logger.info(f"agg: the {int(self.static_rare.sum())} rare tokens are fixed from here on")

    def _window_is_full(self) -> bool:
        return self.counter.updates >= self.counter.window

    def _rare(self, appearances: Tensor, updates: int) -> Tensor:
        if self.static_rare is not None:
            return self.static_rare
        fraction = self.cfg.agg_rare_fraction
        threshold = {"alpha": self.cfg.agg_alpha} if fraction is None else {"rare_fraction": fraction}
        return rare_tokens(appearances, updates, never_rare=self.never_rare, **threshold)

    def _current_gates(self, appearances: Tensor, updates: int) -> Gates | None:
        if updates == 0:
            return None
        alpha = self.cfg.agg_alpha if self.cfg.agg_rare_fraction is None else None
        rare = self._rare(appearances, updates)
        return agg_gates(appearances, updates, rare, which=str(self.cfg.agg_gates), alpha=alpha)

    def gates(self, target: Tensor) -> Gates | None:
        """The gates of this update; counts the micro-batch, which a dummy batch leaves out."""
        if not self.is_dummy:
            self.counter.add(target)
        if self.cfg.agg_count_current_batch:
            current = summed_over_workers(self.counter.current.clone())
            self._gates = self._current_gates(self.counter.appearances + current, self.counter.updates + 1)
        return self._gates

    def measures(self, target: Tensor, output: CrossEntropyOutput, regularizer: Tensor | None) -> dict[str, Measure]:
        """`rare_tokens`, the size of R, and `rare_share`, the same as a share of the vocabulary."""
        found = super().measures(target, output, regularizer)
        if self.training:
            rare = 0 if self._gates is None else self._gates.rare.sum()
            found |= {"rare_tokens": (rare, 1), "rare_share": (rare / self.vocabulary, 1)}
        return found

    def on_optimizer_step(self) -> None:
        """The update's tokens are complete: sums them over the workers, the only reduction of an update."""
        self.counter.close(summed_over_workers)

    def checkpoint_state(self) -> dict[str, Any]:
        """The window, the last update's tokens, and the fixed group if there is one."""
        static = None if self.static_rare is None else self.static_rare.nonzero().squeeze(1).cpu()
        return {"counter": self.counter.get_extra_state(), "open_update": self._open_update, "static_rare": static}

    def load_checkpoint_state(self, state: dict[str, Any]) -> None:
        """Restores `checkpoint_state`; whether its last update took place shows at the next one's number."""
        if "counter" not in state:  # from a criterion without counts
            return
        self.counter.set_extra_state(state["counter"])
        self._open_update = update_in(state, "open_update")
        static = tokens_in(state, "static_rare", self.vocabulary)
        if static is not None and self.cfg.agg_static_after_epoch:
            self.static_rare = torch.zeros_like(self.never_rare)
            self.static_rare[static.to(self.never_rare.device)] = True
        logger.info(f"agg: restored the counts of {self.counter.updates} updates")

    def _warn_if_large(self) -> None:
        if self._warned or self._gates is None or self._epoch() < 2 or not self._window_is_full():
            return
        self._warned = True
        share = int(self._gates.rare.sum()) / self.vocabulary
        if share > 0.5:
            logger.warning(
                f"agg: {share:.0%} of the vocabulary is rare after the first epoch, which costs the other tokens "
                "perplexity; lower --agg-alpha, or set --agg-rare-fraction (0.05 to 0.3)"
            )


def _check_options(cfg: AggCriterionConfig) -> None:
    check_open_interval("--agg-alpha", cfg.agg_alpha)
    if cfg.agg_rare_fraction is not None:
        check_open_interval("--agg-rare-fraction", cfg.agg_rare_fraction)
        if cfg.agg_alpha != DEFAULT_ALPHA:
            raise ValueError(
                f"found both --agg-alpha {cfg.agg_alpha} and --agg-rare-fraction {cfg.agg_rare_fraction}, "
                "which replaces it; drop one of them"
            )
    if cfg.agg_window < 0:
        raise ValueError(f"--agg-window: expected a number of updates or 0 (one epoch), got {cfg.agg_window}")
    if cfg.agg_static_after_epoch < 0:
        raise ValueError(f"--agg-static-after-epoch: expected an epoch or 0 (never), got {cfg.agg_static_after_epoch}")
