"""The two terms that compose with any method: token-level unlikelihood, and cosine regularisation."""

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch import Tensor

from ..functional import CrossEntropyOutput, Unlikelihood, cosine_regularizer, previous_tokens
from .base import LikelihoodCriterion, LikelihoodCriterionConfig, Measure


@dataclass
class PenalizedCriterionConfig(LikelihoodCriterionConfig):
    """Options of the criterions that unlikelihood and cosine regularisation can be added to."""

    ul_alpha: float = field(
        default=0.0,
        metadata={
            "help": "weight of the unlikelihood of tokens seen earlier in the same sequence "
            "(Welleck et al. 2020: 1.0); 0: none"
        },
    )
    cosreg_gamma: float = field(
        default=0.0,
        metadata={"help": "weight of the mean cosine between output embeddings (Gao et al. 2019: 1.0); 0: none"},
    )


class PenalizedCriterion(LikelihoodCriterion):
    """Likelihood with the terms that `--ul-alpha` and `--cosreg-gamma` ask for, each logged apart."""

    averages: ClassVar[dict[str, int]] = LikelihoodCriterion.averages | {"ul_loss": 3, "cosreg": 4}

    def __init__(self, cfg: PenalizedCriterionConfig, task: Any) -> None:
        super().__init__(cfg, task)
        for option in ("ul_alpha", "cosreg_gamma"):
            value = getattr(cfg, option)
            if not 0 <= value < math.inf:
                raise ValueError(f"--{option.replace('_', '-')}: expected a weight of at least 0, got {value}")

    def unlikelihood(self, target: Tensor) -> Unlikelihood | None:
        """The tokens seen earlier in the same sequence should not follow."""
        if not self.cfg.ul_alpha:
            return None
        return Unlikelihood(self.cfg.ul_alpha, previous_tokens(target, self.padding_idx))

    def regularizer(self, weight: Tensor) -> Tensor | None:
        """γ times the mean cosine between the rows of W; padding, which is no token, is left out."""
        if not self.cfg.cosreg_gamma:
            return None
        return self.cfg.cosreg_gamma * cosine_regularizer(weight, ignore_index=self.padding_idx)

    def measures(self, target: Tensor, output: CrossEntropyOutput, regularizer: Tensor | None) -> dict[str, Measure]:
        """`ul_loss`, bits per token, and `cosreg`, the mean cosine; both before their weight."""
        found = super().measures(target, output, regularizer)
        if self.cfg.ul_alpha:
            tokens = (target != self.padding_idx).sum()
            found["ul_loss"] = (output.unlikelihood.sum() / math.log(2), tokens)
        if regularizer is not None:
            found["cosreg"] = (regularizer.detach() / self.cfg.cosreg_gamma, 1)
        return found
