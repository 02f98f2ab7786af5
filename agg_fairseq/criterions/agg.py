"""`--criterion agg`: adaptive gradient gating (Yu et al. 2022)."""

import argparse
import logging
import math
import operator
from dataclasses import dataclass, field
from typing import Any, ClassVar, List, Optional

import torch
from fairseq.dataclass import ChoiceEnum
from omegaconf import II
from torch import Tensor

from ..errors import fail
from ..fairseq_glue.distributed import summed_over_workers
from ..fairseq_glue.saved_state import tokens_in, update_in
from ..functional import CrossEntropyOutput, Gates, agg_gates, rare_tokens
from ..functional.agg import GATES
from ..modules import TokenCounter
from .base import (
    LikelihoodCriterion,
    LikelihoodCriterionConfig,
    Measure,
    check_thresholds,
    make_exclusive,
    register,
    special_tokens,
)

logger = logging.getLogger(__name__)

DEFAULT_ALPHA = 0.03


@dataclass
class AggCriterionConfig(LikelihoodCriterionConfig):
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
        default=0,
        metadata={
            "help": "updates K over which appearances are counted; 0: the updates of one epoch, as in the paper. A "
            "window that is long compared with the training costs perplexity; start with a twentieth of --max-update"
        },
    )
    agg_count_current_batch: bool = field(
        default=False,
        metadata={
            "help": "also count the current batch and the earlier batches of the update, as the authors' code does; "
            "needs a reduction over the workers per batch"
        },
    )
    agg_gates: ChoiceEnum(GATES) = field(  # type: ignore[valid-type]
        default="both",
        metadata={
            "help": "which gates to use: both; g1 or g2 alone (the paper's Table 8); faded: a g1 that equals 1 at "
            "the threshold; continuous: instead of g2, each rare token is compared with the rare target itself"
        },
    )
    agg_static_after_epoch: int = field(
        default=0,
        metadata={"help": "keep the group of rare tokens fixed after this epoch (the paper's Table 9); 0: never"},
    )
    update_freq: List[int] = II("optimization.update_freq")
    max_update: int = II("optimization.max_update")
    max_epoch: int = II("optimization.max_epoch")
    skip_remainder_batch: bool = II("optimization.skip_remainder_batch")


@register("agg", dataclass=AggCriterionConfig)
class AggCriterion(LikelihoodCriterion):
    """Likelihood with the gradient into the embeddings of rare tokens gated by their recent appearances.

    Counts the targets of the previous K updates over all workers; the gates of an update are fixed at its start, the
    same for each of its micro-batches. The first update, with nothing in memory, is not gated.
    """

    name: ClassVar[str] = "agg"
    counts_tokens: ClassVar[bool] = True
    averages: ClassVar[dict[str, int]] = LikelihoodCriterion.averages | {"rare_tokens": 1, "rare_share": 4}

    @classmethod
    def add_args(cls, parser: argparse.ArgumentParser) -> None:
        """Adds the options to a command line, where --agg-alpha and --agg-rare-fraction exclude each other."""
        super().add_args(parser)
        make_exclusive(parser, "agg_alpha", "agg_rare_fraction")

    def __init__(self, cfg: AggCriterionConfig, task: Any) -> None:
        super().__init__(cfg, task)
        check_thresholds(cfg, "agg_alpha", DEFAULT_ALPHA, replaced_by="agg_rare_fraction")
        if cfg.agg_window < 0:
            raise ValueError(f"--agg-window: expected a number of updates or 0 (one epoch), got {cfg.agg_window}")
        if cfg.agg_static_after_epoch < 0:
            raise ValueError(
                f"--agg-static-after-epoch: expected an epoch or 0 (never), got {cfg.agg_static_after_epoch}"
            )
        self.register_buffer("never_rare", special_tokens(task.target_dictionary), persistent=False)
        self.register_buffer("static_rare", None, persistent=False)
        self.counter = TokenCounter(self.vocabulary, max(cfg.agg_window, 1), ignore_index=self.padding_idx)
        self._gates: Gates | None = None  # of this update; with --agg-count-current-batch of this micro-batch
        self._warned = False

    def begin_update(self, update_num: int) -> None:
        """The previous update enters the window if it took place, and the gates of this one are set."""
        super().begin_update(update_num)
        counter, cfg = self.counter, self.cfg
        if counter.open_update is None:
            logger.info(f"agg: the window of token counts starts empty at update {update_num}")
            dictionary = self.task.target_dictionary
            counts = dictionary.count[dictionary.nspecial :]
            if cfg.agg_rare_fraction is not None and any(map(operator.lt, counts, counts[1:])):
                logger.warning(
                    "agg: the dictionary is not sorted by frequency, so that --agg-rare-fraction chooses arbitrarily "
                    "among tokens that appeared equally often (the one with the higher index counts as rarer); "
                    "--agg-alpha makes no such choice"
                )
            window = self._window()
            training = min(cfg.max_update or math.inf, cfg.max_epoch * window or math.inf)  # updates; 0 is no limit
            if not cfg.agg_window and training < 10 * window:
                logger.warning(
                    f"agg: the window is one epoch of {window:,} updates, more than a tenth of the training of "
                    f"{training:,}; in our comparison (docs/which-cure.md) a window of a twentieth, here --agg-window "
                    f"{max(1, training // 20)}, led to a lower total perplexity"
                )
        counter.begin(update_num)
        counter.resize(self._window())
        epoch, is_full = self._epoch(), counter.updates >= counter.window
        if cfg.agg_static_after_epoch and self.static_rare is None and epoch > cfg.agg_static_after_epoch and is_full:
            self.static_rare = self._rare(counter.appearances, counter.updates)
            logger.info(f"agg: the {int(self.static_rare.sum())} rare tokens are fixed from here on")
        self._gates = self._gates_from(counter.appearances, counter.updates)
        if not self._warned and self._gates is not None and epoch >= 2 and is_full:
            self._warned = True
            share = int(self._gates.rare.sum()) / self.vocabulary
            if share > 0.5 and cfg.agg_gates != "faded":  # those hold back only the rarest of the group
                logger.warning(
                    f"agg: {share:.0%} of the vocabulary is rare after the first epoch, which costs the other tokens "
                    "perplexity; lower --agg-alpha, or set --agg-rare-fraction (0.05 to 0.3)"
                )

    def _epoch(self) -> int:
        return max(1, self.train_iterator.epoch) if self.train_iterator is not None else 1

    def _window(self) -> int:
        """K in updates: as given, or the updates of the present epoch."""
        if self.cfg.agg_window:
            return self.cfg.agg_window
        if self.train_iterator is None:
            fail("--criterion agg: found no training data to take the length of an epoch from; give --agg-window K")
        frequencies = self.cfg.update_freq
        updates = len(self.train_iterator) / frequencies[min(self._epoch(), len(frequencies)) - 1]
        return max(1, math.floor(updates) if self.cfg.skip_remainder_batch else math.ceil(updates))

    def _rare(self, appearances: Tensor, updates: int) -> Tensor:
        """(V,) bool, R: the fixed group if there is one, else that of these appearances in so many updates."""
        if self.static_rare is not None:
            return self.static_rare
        fraction = self.cfg.agg_rare_fraction
        threshold = {"alpha": self.cfg.agg_alpha} if fraction is None else {"rare_fraction": fraction}
        return rare_tokens(appearances, updates, never_rare=self.never_rare, **threshold)

    def _gates_from(self, appearances: Tensor, updates: int) -> Gates | None:
        """The gates from appearances (V,) in so many updates; None if there are none."""
        if updates == 0:
            return None
        alpha = self.cfg.agg_alpha if self.cfg.agg_rare_fraction is None else None
        rare = self._rare(appearances, updates)
        return agg_gates(appearances, updates, rare, which=str(self.cfg.agg_gates), alpha=alpha)

    def count_targets(self, target: Tensor) -> None:
        """Adds the targets to the update under way."""
        self.counter.add(target)

    def gates(self, target: Tensor) -> Gates | None:
        """The gates of this update; with --agg-count-current-batch those that include what it has counted so far."""
        if self.cfg.agg_count_current_batch:
            current = summed_over_workers(self.counter.current.clone())
            self._gates = self._gates_from(self.counter.appearances + current, self.counter.updates + 1)
        return self._gates

    def measures(self, target: Tensor, output: CrossEntropyOutput) -> dict[str, Measure]:
        """`rare_tokens`, the size of R, and `rare_share`, the same as a share of the vocabulary.

        The first update, before which nothing is counted, has no group: a size of 0 would be averaged in with others.
        """
        found = super().measures(target, output)
        if self.training and self._gates is not None:
            rare = self._gates.rare.sum()
            found |= {"rare_tokens": (rare, 1), "rare_share": (rare / self.vocabulary, 1)}
        return found

    def on_optimizer_step(self) -> None:
        """The update's tokens are complete: sums them over the workers, the only reduction of an update."""
        self.counter.close(summed_over_workers)

    def checkpoint_state(self) -> dict[str, Any]:
        """The window, the last update's tokens, and the fixed group if there is one."""
        static = None if self.static_rare is None else self.static_rare.nonzero().squeeze(1).cpu()
        counter = self.counter
        return {"counter": counter.get_extra_state(), "open_update": counter.open_update, "static_rare": static}

    def load_checkpoint_state(self, state: dict[str, Any]) -> None:
        """Restores `checkpoint_state`; a state without a counter is that of another criterion.

        Whether its last update took place shows at the number of the next one.
        """
        if "counter" not in state:
            return
        self.counter.set_extra_state(state["counter"])
        self.counter.open_update = update_in(state, "open_update")
        static = tokens_in(state, "static_rare", self.vocabulary)
        if static is not None and self.cfg.agg_static_after_epoch:
            self.static_rare = torch.zeros_like(self.never_rare)
            self.static_rare[static.to(self.never_rare.device)] = True
        logger.info(f"agg: restored the counts of {self.counter.updates} updates")
