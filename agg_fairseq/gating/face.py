"""Frequency-aware cross-entropy, FACE-OPR (Jiang et al. 2019, "Improving Neural Response Diversity
with Frequency-Aware Cross-Entropy Loss")."""

import torch
from torch import Tensor
from typing_extensions import Unpack

from ..functional import whole_counts
from ..modules import TokenCounter
from .base import Gating, GatingOptions


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


class FaceWeights(Gating):
    """Weights of positions in place of gates: less, the more often the model itself has output
    their target.

        weights = face(target)                                       # (B, T), before the forward pass
        loss = (weights * F.cross_entropy(…, reduction="none")).sum()
        face.count(logits.argmax(-1), target)

    Output are the arg-max predictions of all previous updates on all workers. (The authors' code
    also counts the batch at hand, of one worker.) Arguments and updates as those of `Gating`.
    """

    counter: TokenCounter

    def __init__(self, vocabulary: int, **options: Unpack[GatingOptions]) -> None:
        super().__init__(vocabulary, **options)
        self.counter = TokenCounter(vocabulary, None, self.ignore_index)

    def forward(  # type: ignore[override]
        self, target: Tensor, is_dummy: bool = False
    ) -> Tensor | None:
        """`face_weights` of the targets (B, T) of a training micro-batch."""
        super().forward(target, is_dummy=True)  # it does not count the targets
        if not (self.training and torch.is_grad_enabled()):
            return None
        weights = face_weights(self.counter.appearances)
        return weights[target.masked_fill(target == self.ignore_index, 0)]

    def count(self, prediction: Tensor, target: Tensor) -> None:
        """Counts the predictions (B, T) of a micro-batch, where there is a target."""
        self.counter.add(prediction.where(target != self.ignore_index, self.ignore_index))
