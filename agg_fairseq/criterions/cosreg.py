"""`--criterion cosreg`: likelihood with cosine regularisation (Gao et al. 2019, Eq. 6)."""

from dataclasses import dataclass, field
from typing import ClassVar

from .penalties import PenalizedCriterion, PenalizedCriterionConfig
from .registration import register


@dataclass
class CosRegCriterionConfig(PenalizedCriterionConfig):
    """Options of `--criterion cosreg`."""

    cosreg_gamma: float = field(
        default=1.0, metadata={"help": "weight of the mean cosine between output embeddings (the paper's value: 1.0)"}
    )


@register("cosreg", dataclass=CosRegCriterionConfig)
class CosRegCriterion(PenalizedCriterion):
    """`L = L_MLE + γ/V² (‖Σ_k ŵ_k‖² − V)`.

    The term is counted once per update, whatever the batch: it is multiplied by `sample_size`, by which fairseq divides
    the gradient.
    """

    name: ClassVar[str] = "cosreg"
