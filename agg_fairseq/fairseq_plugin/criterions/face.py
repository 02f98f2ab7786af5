"""`--criterion face`: frequency-aware cross-entropy, FACE-OPR (Jiang et al. 2019)."""

from typing import Any, ClassVar

from fairseq.criterions import register_criterion

from ...objective import FaceObjective
from .base import LikelihoodCriterion, LikelihoodCriterionConfig


@register_criterion("face", dataclass=LikelihoodCriterionConfig)
class FaceCriterion(LikelihoodCriterion):
    """See `FaceObjective`."""

    counts_tokens: ClassVar[bool] = True

    def make_objective(self, **options: Any) -> FaceObjective:
        return FaceObjective(**options)
