"""`--criterion mle`: plain likelihood through the same operation as the other methods."""

from .base import LikelihoodCriterion, LikelihoodCriterionConfig, register


@register("mle", dataclass=LikelihoodCriterionConfig)
class MleCriterion(LikelihoodCriterion):
    """Maximum likelihood: every gate is 1. The baseline that costs and logs the same as the gated methods."""
