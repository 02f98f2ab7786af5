"""`--criterion face`: frequency-aware cross-entropy, FACE-OPR (Jiang et al. 2019)."""

from typing import Any, ClassVar

from fairseq.criterions import register_criterion
from torch import Tensor

from ..functional import face_weights
from ..modules import TokenCounter
from ..objective import Objective
from .base import LikelihoodCriterion, LikelihoodCriterionConfig


class FaceObjective(Objective):
    """Likelihood whose positions weigh less the more often the model itself has output their
    target.

    Output are the arg-max predictions of all previous updates on all workers, so that the weights
    are the same for every worker and micro-batch of an update. (The authors' code also counts the
    batch at hand, of one worker.)
    """

    predicts: ClassVar[bool] = True
    weight_of_token: Tensor | None = None  # (V,) float32, of this update

    def __init__(self, vocabulary: int, **options: Any) -> None:
        super().__init__(vocabulary, **options)
        self.counter = TokenCounter(vocabulary, window=None)
        self.start_update()

    def start_update(self) -> None:
        self.weight_of_token = face_weights(self.counter.appearances)

    def position_weight(self, target: Tensor) -> Tensor:
        return self.weight_of_token[target]

    def count_predictions(self, prediction: Tensor, target: Tensor) -> None:
        """Counts what the model outputs at the positions that are not padding."""
        self.counter.add(
            prediction.masked_fill(target == self.ignore_index, self.counter.ignore_index)
        )


@register_criterion("face", dataclass=LikelihoodCriterionConfig)
class FaceCriterion(LikelihoodCriterion):
    """See `FaceObjective`."""

    counts_tokens: ClassVar[bool] = True

    def make_objective(self, **options: Any) -> FaceObjective:
        return FaceObjective(**options)
