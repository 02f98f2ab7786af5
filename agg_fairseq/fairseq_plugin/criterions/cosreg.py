"""`--criterion cosreg`: likelihood with cosine regularization (Gao et al. 2019, Eq. 6)."""

from dataclasses import dataclass

from fairseq.criterions import register_criterion

from .. import option
from .base import LikelihoodCriterion, LikelihoodCriterionConfig


@dataclass
class CosRegCriterionConfig(LikelihoodCriterionConfig):
    """Options of `--criterion cosreg`."""

    cosreg_gamma: float = option(
        1.0, "weight of the mean cosine between output embeddings (the paper's value: 1.0)"
    )


@register_criterion("cosreg", dataclass=CosRegCriterionConfig)
class CosRegCriterion(LikelihoodCriterion):
    """`L = L_MLE + γ/V² (‖Σ_k ŵ_k‖² − V)`: `--criterion mle --cosreg-gamma 1`."""
