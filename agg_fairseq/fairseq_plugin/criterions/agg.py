"""`--criterion agg`: adaptive gradient gating (Yu et al. 2022)."""

import logging
import math
from dataclasses import dataclass
from typing import Any, ClassVar, List, Optional

import torch
from fairseq.criterions import register_criterion
from fairseq.dataclass import ChoiceEnum
from omegaconf import II

from ...data.binarized import excluded_tokens
from ...errors import UserError
from ...functional import rare_tokens
from ...functional.gates import AGG_GATES
from ...objective.agg import DEFAULT_ALPHA, AggObjective
from ...objective.base import has_workers
from .. import option
from .base import LikelihoodCriterion, LikelihoodCriterionConfig

logger = logging.getLogger(__name__)


@dataclass
class AggCriterionConfig(LikelihoodCriterionConfig):
    """Options of `--criterion agg`."""

    agg_alpha: Optional[float] = option(
        None,
        f"a token is rare if it appears fewer than this many times per update, in (0, 1); "
        f"{DEFAULT_ALPHA} by default. agg-fairseq groups prints that of your text; or use "
        "--agg-rare-fraction, which needs no rescaling",
    )
    agg_rare_fraction: Optional[float] = option(
        None,
        "instead of --agg-alpha: the fraction of the tokens in the window that is rare, in (0, 1); "
        "those that are not in it are rare too",
    )
    agg_window: int = option(
        0,
        "updates K over which appearances are counted; 0: the updates of one epoch, as in the "
        "paper. A long window costs perplexity: start with K = 2N, in which a rare token appears "
        "about twice (`agg-fairseq groups`)",
    )
    agg_count_current_batch: bool = option(
        False,
        "also count the current batch and the earlier batches of the update, as the authors' code "
        "does; needs a reduction over the workers per batch",
    )
    agg_gates: ChoiceEnum(AGG_GATES) = option(  # type: ignore[valid-type]
        "both",
        "which gates to use: both; or g1 or g2 alone (the paper's Table 8)",
    )
    agg_static_after_epoch: int = option(
        0, "keep the group of rare tokens fixed after this epoch (the paper's Table 9); 0: never"
    )
    update_freq: List[int] = II("optimization.update_freq")
    max_update: int = II("optimization.max_update")
    max_epoch: int = II("optimization.max_epoch")
    skip_remainder_batch: bool = II("optimization.skip_remainder_batch")


@register_criterion("agg", dataclass=AggCriterionConfig)
class AggCriterion(LikelihoodCriterion):
    """Tells an `AggObjective` the length of an epoch, and its number."""

    counts_tokens: ClassVar[bool] = True
    logged: ClassVar[dict[str, int]] = LikelihoodCriterion.logged | {
        "rare_tokens": 1,
        "rare_share": 4,
    }
    objective: AggObjective

    def make_objective(self, **options: Any) -> AggObjective:
        cfg = self.cfg
        return AggObjective(
            alpha=cfg.agg_alpha,
            rare_fraction=cfg.agg_rare_fraction,
            window=cfg.agg_window or 1,  # one epoch, once its length is known
            gates=str(cfg.agg_gates),
            count_current_batch=cfg.agg_count_current_batch,
            excluded=excluded_tokens(self.task.target_dictionary),
            **options,
        )

    def prepare(self) -> None:
        """Logs what is rare by the counts of the training split; warns of more than half of the
        tokens, and of a window that is long compared with the training."""
        cfg, updates = self.cfg, self._updates_of_epoch()
        # 0: no limit
        training = min(cfg.max_update or math.inf, cfg.max_epoch * updates or math.inf)
        if not cfg.agg_window and training < 10 * updates:
            logger.warning(
                f"agg: the window is one epoch of {updates:,} updates, more than a tenth of the "
                f"training of {training:,}; one in which a rare token appears once or twice led to "
                "a lower perplexity (docs/method.md); agg-fairseq groups tells how many updates "
                "that takes"
            )
        try:
            counts = self.count_targets(self.train_iterator.epoch)  # of as many updates
        except UserError as error:
            logger.info(f"agg: what is rare is not known before the training ({error})")
            return
        if has_workers() and torch.distributed.get_rank():
            return  # the first worker says it
        alpha, fraction, occurs = self.objective.alpha, self.objective.rare_fraction, counts > 0
        threshold = f"rare fraction {fraction:g}" if alpha is None else f"alpha {alpha:g}"
        # On the CPU, where the counts are.
        excluded = excluded_tokens(self.task.target_dictionary)
        rare = rare_tokens(counts, updates, alpha=alpha, rare_fraction=fraction, excluded=excluded)
        rare &= occurs
        token_share = (rare.sum() / occurs.sum()).item()
        target_share = (counts[rare].sum() / counts.sum()).item()
        said = (
            f"agg: with {threshold} and epochs of {updates:,} updates, "
            f"{token_share:.1%} of the {int(occurs.sum()):,} tokens that occur and "
            f"{target_share:.1%} of the targets are rare"
        )
        if token_share > 0.5:
            logger.warning(f"{said}; lower it, since more than half of the tokens is much")
        else:
            logger.info(said)

    def on_train_iterator(self, iterator: Any) -> None:
        """Sets the window of this epoch."""
        super().on_train_iterator(iterator)
        self.objective.counter.resize(self.cfg.agg_window or self._updates_of_epoch())

    def start_update(self, update_num: int) -> None:
        """Fixes the rare group after --agg-static-after-epoch."""
        super().start_update(update_num)
        if 0 < self.cfg.agg_static_after_epoch < self.train_iterator.epoch:
            self.objective.fix_group()

    def _updates_of_epoch(self) -> int:
        """The updates of the present epoch, at least 1."""
        epoch, frequencies = self.train_iterator.epoch, self.cfg.update_freq
        frequency = frequencies[min(max(1, epoch), len(frequencies)) - 1]
        batches = len(self.train_iterator)
        if self.cfg.skip_remainder_batch:  # fairseq leaves out the last batch, full or not
            return max(1, (batches - 1) // frequency)
        return math.ceil(batches / frequency)

    def load_checkpoint_state(self, state: dict[str, Any]) -> None:
        super().load_checkpoint_state(state)
        if not self.cfg.agg_static_after_epoch:
            self.objective.static_rare = None
