"""`--criterion face`: frequency-aware cross-entropy, FACE-OPR (Jiang et al. 2019)."""

from typing import Any, ClassVar

from fairseq.criterions import register_criterion
from torch import Tensor

from ...gating import FaceWeights
from .base import GatedCriterion, GatedCriterionConfig


@register_criterion("face", dataclass=GatedCriterionConfig)
class FaceCriterion(GatedCriterion):
    """See `FaceWeights`."""

    counts_tokens: ClassVar[bool] = True
    gating: FaceWeights

    def make_gating(self, **options: Any) -> FaceWeights:
        return FaceWeights(**options)

    def forward(
        self, model: Any, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, int, dict[str, Any]]:
        weights = self.gating(sample["target"], self.is_dummy)
        options = {"position_weight": weights, "predict": weights is not None}
        output, weight = self.loss_of_model(model, sample, **options)
        if output.prediction is not None and not self.is_dummy:
            self.gating.count(output.prediction, sample["target"])
        return self.result(weight, output, sample, reduce=reduce)
