"""`--criterion mle`: plain likelihood through the same operation as the other methods."""

from fairseq.criterions import register_criterion

from .base import LikelihoodCriterion, LikelihoodCriterionConfig


@register_criterion("mle", dataclass=LikelihoodCriterionConfig)
class MleCriterion(LikelihoodCriterion):
    """The baseline of the gated methods."""
