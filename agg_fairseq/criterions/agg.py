"""`--criterion agg`: adaptive gradient gating (Yu et al. 2022)."""

import logging
import math
import operator
from dataclasses import dataclass
from typing import Any, ClassVar, List, Optional

from fairseq.dataclass import ChoiceEnum
from omegaconf import II
from torch import Tensor

from ..fairseq_glue.dictionaries import fillers, special_tokens
from ..fairseq_glue.distributed import sum_over_workers
from ..fairseq_glue.registries import option
from ..functional import CrossEntropyOutput, Gates
from ..functional.agg import DEFAULT_ALPHA, GATES
from ..modules import AggState
from .base import LikelihoodCriterion, LikelihoodCriterionConfig, Measure, register
from .options import check_at_least

logger = logging.getLogger(__name__)


@dataclass
class AggCriterionConfig(LikelihoodCriterionConfig):
    """Options of `--criterion agg`."""

    agg_alpha: float = option(
        DEFAULT_ALPHA,
        "a token is rare if it appears fewer than this many times per update, in (0, 1). Rescale it with the tokens "
        "per update and the corpus, or use --agg-rare-fraction, which needs no rescaling",
    )
    agg_rare_fraction: Optional[float] = option(  # noqa: UP045 — fairseq reads the annotation
        None, "instead of --agg-alpha: the fraction of the vocabulary that is rare at every update, in (0, 1)"
    )
    agg_window: int = option(
        0,
        "updates K over which appearances are counted; 0: the updates of one epoch, as in the paper. A window that is "
        "long costs perplexity: start with one in which a rare token appears once or twice, which `agg-fairseq groups` "
        "tells",
    )
    agg_count_current_batch: bool = option(
        False,
        "also count the current batch and the earlier batches of the update, as the authors' code does; needs a "
        "reduction over the workers per batch",
    )
    agg_gates: ChoiceEnum(GATES) = option(  # type: ignore[valid-type]
        "both",
        "which gates to use: both; g1 or g2 alone (the paper's Table 8); faded: a g1 that equals 1 at the threshold",
    )
    agg_static_after_epoch: int = option(
        0, "keep the group of rare tokens fixed after this epoch (the paper's Table 9); 0: never"
    )
    update_freq: List[int] = II("optimization.update_freq")
    max_update: int = II("optimization.max_update")
    max_epoch: int = II("optimization.max_epoch")
    skip_remainder_batch: bool = II("optimization.skip_remainder_batch")


@register("agg", dataclass=AggCriterionConfig)
class AggCriterion(LikelihoodCriterion):
    """Likelihood with the gradient into the embeddings of rare tokens gated by their recent appearances.

    `AggState` has the counts and the gates; here it is told what fairseq knows: the length of an epoch, the targets on
    all workers, and which updates take place.
    """

    counts_tokens: ClassVar[bool] = True
    logged: ClassVar[dict[str, int]] = LikelihoodCriterion.logged | {"rare_tokens": 1, "rare_share": 4}

    def __init__(self, cfg: AggCriterionConfig, task: Any) -> None:
        super().__init__(cfg, task)
        check_at_least(0, cfg, "agg_window", "a number of updates or 0 (one epoch)")
        check_at_least(0, cfg, "agg_static_after_epoch", "an epoch or 0 (never)")
        is_default = cfg.agg_rare_fraction is not None and cfg.agg_alpha == DEFAULT_ALPHA
        self.agg = AggState(
            self.vocabulary,
            alpha=None if is_default else cfg.agg_alpha,
            rare_fraction=cfg.agg_rare_fraction,
            window=max(cfg.agg_window, 1),
            gates=str(cfg.agg_gates),
            never_rare=special_tokens(task.target_dictionary) | fillers(task.target_dictionary),
            ignore_index=self.padding_idx,
        )

    def begin_update(self, update_num: int) -> None:
        """The previous update enters the window if it took place, and the gates of this one are set."""
        super().begin_update(update_num)
        if self.agg.counter.open_update is None:
            logger.info(f"agg: the window of token counts starts empty at update {update_num}")
            self._warn()
        self.agg.counter.begin(update_num)
        self.agg.counter.resize(self._window())
        last_epoch = self.cfg.agg_static_after_epoch  # in which the group changes; 0: it always does
        if last_epoch and self.agg.static_rare is None and self.agg.has_full_window:
            if self.train_iterator.epoch > last_epoch:
                self.agg.fix_group()
        self.agg.set_gates()

    def _warn(self) -> None:
        """Warns of a group that is chosen arbitrarily, and of a window that is long compared with the training."""
        cfg, dictionary, window = self.cfg, self.task.target_dictionary, self._window()
        counts = dictionary.count[dictionary.nspecial :]
        if cfg.agg_rare_fraction is not None and any(map(operator.lt, counts, counts[1:])):
            logger.warning(
                "agg: the dictionary is not sorted by frequency, so that --agg-rare-fraction chooses arbitrarily "
                "among tokens that appeared equally often (the one with the higher index counts as rarer); "
                "--agg-alpha makes no such choice"
            )
        training = min(cfg.max_update or math.inf, cfg.max_epoch * window or math.inf)  # updates; 0 is no limit
        if not cfg.agg_window and training < 10 * window:
            logger.warning(
                f"agg: the window is one epoch of {window:,} updates, more than a tenth of the training of "
                f"{training:,}; in our comparison (docs/which-cure.md) a window in which a rare token appears once or "
                "twice led to a lower total perplexity; agg-fairseq groups tells how many updates that takes"
            )

    def _window(self) -> int:
        """K in updates: as given, or the updates of the present epoch."""
        if self.cfg.agg_window:
            return self.cfg.agg_window
        frequencies = self.cfg.update_freq
        updates = len(self.train_iterator) / frequencies[min(max(1, self.train_iterator.epoch), len(frequencies)) - 1]
        return max(1, math.floor(updates) if self.cfg.skip_remainder_batch else math.ceil(updates))

    def count_targets(self, target: Tensor) -> None:
        """Adds the targets to the update under way."""
        self.agg.counter.add(target)

    def gates(self, target: Tensor) -> Gates | None:
        """The gates of this update; with --agg-count-current-batch those that include what it has counted so far."""
        if self.cfg.agg_count_current_batch:
            self.agg.set_gates(sum_over_workers(self.agg.counter.current.clone()))
        return self.agg.gates

    def measures(self, target: Tensor, output: CrossEntropyOutput) -> dict[str, Measure]:
        """`rare_tokens`, the size of R, and `rare_share`, the same as a share of the vocabulary.

        The first update, before which nothing is counted, has no group: a size of 0 would be averaged in with others.
        """
        found = super().measures(target, output)
        if self.training and self.agg.gates is not None:
            rare = self.agg.gates.rare.sum()
            found |= {"rare_tokens": (rare, 1), "rare_share": (rare / self.vocabulary, 1)}
        return found

    def on_optimizer_step(self) -> None:
        """The update's tokens are complete: sums them over the workers, the only reduction of an update."""
        self.agg.counter.close(sum_over_workers)

    def checkpoint_state(self) -> dict[str, Any]:
        """The window, the last update's tokens, and the fixed group if there is one."""
        return self.agg.checkpoint_state()

    def load_checkpoint_state(self, state: dict[str, Any]) -> None:
        """Restores `checkpoint_state`; a state without a counter is that of another criterion."""
        if "counter" not in state:
            return
        self.agg.load_checkpoint_state(state)
        if not self.cfg.agg_static_after_epoch:
            self.agg.static_rare = None
        logger.info(f"agg: restored the counts of {self.agg.counter.updates} updates")
