"""`--criterion agg`: adaptive gradient gating (Yu et al. 2022)."""

import logging
import math
from dataclasses import dataclass
from typing import Any, ClassVar, Optional

import torch
from fairseq.criterions import register_criterion
from fairseq.dataclass import ChoiceEnum
from omegaconf import II

from ...errors import UserError
from ...functional import rare_tokens
from ...functional.gates import AGG_GATES
from ...gating import AggGating, WindowGating
from ...gating.window import DEFAULT_ALPHA
from .. import option
from .base import GatedCriterion, GatedCriterionConfig

logger = logging.getLogger(__name__)


@dataclass
class WindowCriterionConfig(GatedCriterionConfig):
    """Options of every rule by the appearances in a window."""

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
    agg_static_after_epoch: int = option(
        0, "keep the group of rare tokens fixed after this epoch (the paper's Table 9); 0: never"
    )
    max_update: int = II("optimization.max_update")
    max_epoch: int = II("optimization.max_epoch")


class WindowCriterion(GatedCriterion):
    """Likelihood with the gates of a `WindowGating`; a subclass defines `make_gating`."""

    counts_tokens: ClassVar[bool] = True
    gating: WindowGating

    def window_options(self) -> dict[str, Any]:
        """The options of a `WindowGating`."""
        cfg = self.cfg
        return {
            "alpha": cfg.agg_alpha,
            "rare_fraction": cfg.agg_rare_fraction,
            "window": cfg.agg_window or None,
            "static_after_epoch": cfg.agg_static_after_epoch,
            "count_current_batch": cfg.agg_count_current_batch,
        }

    def on_training_data(self, epoch: int) -> None:
        """Logs what is rare by the counts of the training split; warns of more than half of the
        tokens, and of a window that is long compared with the training."""
        cfg, name, updates = self.cfg, self.cfg._name, self.updates_of_epoch(epoch)
        # 0: no limit
        training = min(cfg.max_update or math.inf, cfg.max_epoch * updates or math.inf)
        if not cfg.agg_window and training < 10 * updates:
            logger.warning(
                f"{name}: the window is one epoch of {updates:,} updates, more than a tenth of "
                f"the training of {training:,}; one in which a rare token appears once or twice "
                "led to a lower perplexity (docs/method.md); agg-fairseq groups tells how many "
                "updates that takes"
            )
        try:
            counts = self.count_targets(epoch)  # of as many updates
        except UserError as error:
            logger.info(f"{name}: what is rare is not known before the training ({error})")
            return
        if torch.distributed.is_initialized() and torch.distributed.get_rank():
            return  # the first worker says it
        gating = self.gating
        counts = counts.to(gating.counter.appearances.device)
        occurs, alpha = counts > 0, gating.threshold["alpha"]
        rare = rare_tokens(counts, updates, **gating.threshold, excluded=gating.excluded) & occurs
        if alpha is None:
            threshold = f"rare fraction {gating.threshold['rare_fraction']:g}"
        else:
            threshold = f"alpha {alpha:g}"
        token_share = (rare.sum() / occurs.sum()).item()
        target_share = (counts[rare].sum() / counts.sum()).item()
        said = (
            f"{name}: with {threshold} and epochs of {updates:,} updates, "
            f"{token_share:.1%} of the {int(occurs.sum()):,} tokens that occur and "
            f"{target_share:.1%} of the targets are rare"
        )
        if token_share > 0.5:
            logger.warning(f"{said}; lower it, since more than half of the tokens is much")
        else:
            logger.info(said)


@dataclass
class AggCriterionConfig(WindowCriterionConfig):
    """Options of `--criterion agg`."""

    agg_gates: ChoiceEnum(AGG_GATES) = option(  # type: ignore[valid-type]
        "both",
        "which gates to use: both; or g1 or g2 alone (the paper's Table 8)",
    )


@register_criterion("agg", dataclass=AggCriterionConfig)
class AggCriterion(WindowCriterion):
    """See `AggGating`."""

    def make_gating(self, **options: Any) -> AggGating:
        return AggGating(which=str(self.cfg.agg_gates), **self.window_options(), **options)
