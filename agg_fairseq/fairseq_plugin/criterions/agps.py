"""`--criterion agps`: adaptive gradient partial scaling (Yu et al. 2021)."""

from dataclasses import dataclass
from typing import Any, ClassVar

from fairseq.criterions import register_criterion
from fairseq.dataclass import ChoiceEnum

from ...functional.gates import AGPS_VARIANTS
from ...gating.agps import DEFAULT_MU1, DEFAULT_MU2, AgpsGating
from .. import option
from .base import GatedCriterion, GatedCriterionConfig


@dataclass
class AgpsCriterionConfig(GatedCriterionConfig):
    """Options of `--criterion agps`; the defaults are the paper's for WikiText-103."""

    agps_mu1: float = option(
        DEFAULT_MU1,
        "number of training occurrences from which f1 is 1, above that of every rare token (WMT14 in "
        "the paper: 1500)",
    )
    agps_mu2: float = option(
        DEFAULT_MU2, "number of training occurrences from which f2 is 1, usually < mu1 (WMT14: 400)"
    )
    agps_rare_rank: int = option(
        25000,
        "frequency rank from which a token is rare; the most frequent one has rank 0 "
        "(WMT14: 27000)",
    )
    agps_variant: ChoiceEnum(AGPS_VARIANTS) = option(  # type: ignore[valid-type]
        "eq15",
        "gates of Eq. 15, or of the appendix's Algorithm 1, whose gate at rare targets is f1 + f2",
    )


@register_criterion("agps", dataclass=AgpsCriterionConfig)
class AgpsCriterion(GatedCriterion):
    """See `AgpsGating`."""

    counts_tokens: ClassVar[bool] = True
    gating: AgpsGating

    def make_gating(self, **options: Any) -> AgpsGating:
        return AgpsGating(
            rare_rank=self.cfg.agps_rare_rank,
            mu1=self.cfg.agps_mu1,
            mu2=self.cfg.agps_mu2,
            variant=str(self.cfg.agps_variant),
            **options,
        )

    def on_training_data(self, epoch: int) -> None:
        self.gating.set_counts(self.count_targets())
