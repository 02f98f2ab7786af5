"""`--criterion unlikelihood`: likelihood with token-level unlikelihood (Welleck et al. 2020)."""

from dataclasses import dataclass

from fairseq.criterions import register_criterion

from .. import option
from .base import LikelihoodCriterion, LikelihoodCriterionConfig


@dataclass
class UnlikelihoodCriterionConfig(LikelihoodCriterionConfig):
    """Options of `--criterion unlikelihood`."""

    ul_alpha: float = option(
        1.0,
        "weight of the unlikelihood of tokens seen earlier in the same sequence (the paper's: 1.0)",
    )


@register_criterion("unlikelihood", dataclass=UnlikelihoodCriterionConfig)
class UnlikelihoodCriterion(LikelihoodCriterion):
    """`L = −log p(y_t) − α Σ_{c ∈ C_t} log(1 − p(c))`, `C_t` the tokens seen earlier in the same
    sequence, less y_t: `--criterion mle --ul-alpha 1`."""
