"""Frequency-aware cross-entropy, FACE-OPR (Jiang et al. 2019, "Improving Neural Response Diversity
with Frequency-Aware Cross-Entropy Loss")."""

from typing import Any, ClassVar

import torch
from torch import Tensor

from ..functional import whole_counts
from ..modules import TokenCounter
from .base import MicroBatch, Objective


def face_weights(counts: Tensor) -> Tensor:
    """The weight of each token in FACE, `1 − f[k] / max f`, scaled to a mean of 1: (V,) float32.

    This is the variant with pre-weight. All weights are 1 where all tokens were output equally
    often.

    Args:
        counts: (V,) f, how often each token was output (OPR), or is in the training set.

    Examples:
        >>> face_weights(torch.tensor([4, 2, 0]))
        tensor([0., 1., 2.])
    """
    f = whole_counts(counts).double()
    weight = 1 - f / f.max().clamp(min=1)
    total = weight.sum()
    return torch.where(total > 0, weight * (len(f) / total), torch.ones_like(weight)).float()


class FaceObjective(Objective):
    """Likelihood whose positions weigh less the more often the model itself has output their
    target.

    Output are the arg-max predictions of all previous updates on all workers. (The authors' code
    also counts the batch at hand, of one worker.)

    Args:
        vocabulary: V.
        **options: as of `Objective`.
    """

    predicts: ClassVar[bool] = True
    counter: TokenCounter

    def __init__(self, vocabulary: int, **options: Any) -> None:
        super().__init__(vocabulary, **options)
        self.counter = TokenCounter(vocabulary, window=None)

    def micro_batch(self, target: Tensor, is_dummy: bool = False) -> MicroBatch:
        """As of `Objective`, with the `face_weights` of the targets."""
        micro_batch = super().micro_batch(target, is_dummy)
        if not self.is_training:
            return micro_batch
        weights = face_weights(self.counter.appearances)
        weights = weights[target.masked_fill(target == self.ignore_index, 0)]
        return micro_batch._replace(position_weight=weights)

    def count_predictions(self, prediction: Tensor, target: Tensor) -> None:
        """Counts the predictions where there is a target."""
        ignored = target == self.ignore_index
        self.counter.add(prediction.masked_fill(ignored, self.counter.ignore_index))
