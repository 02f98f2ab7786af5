"""The mean row of W as a penalty (μ-loss), or subtracted (μ-centering).

Reference: Stollenwerk, Lokrantz & Hertzberg (2026), "Output Embedding Centering for Stable LLM Pretraining".

`μ = Σ_k w_k / V` is the mean of all V rows that the softmax runs over, padding and the other special tokens included,
and it is subtracted from all of them. So each logit of a position falls by the same number `h·μ`, and no probability
changes. What does change is logsumexp, and with it the z-loss; functions of W alone, such as I(W), S(W) and weight
decay; and with tied embeddings the input of each token, by `−μ`.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from .loss_core import working_dtype


def mean_row_penalty(weight: Tensor) -> Tensor:
    """`‖μ‖²`, a scalar, of the mean row `μ = Σ_k w_k / V` of W (V, D); its gradient is `2μ/V` for each row.

    Cost: one pass over W, and one that fills the gradient. Computed in float32 whatever the dtype (float64 stays).
    """
    return weight.mean(0, dtype=working_dtype(weight)).square().sum()


@torch.no_grad()
def center_rows_(weight: Tensor, masters: Iterable[Tensor] = ()) -> None:
    """`w_k ← w_k − μ` for all rows of W (V, D), in place: to be called after each step of the optimizer.

    Cost: one pass over W that reads, and one that writes. With `masters`, float32 copies of W that an optimizer for
    half precision trains, these are centered, and W takes their rounded values, as after a step of such an optimizer.
    """
    masters = list(masters)
    for tensor in masters or [weight]:
        mean = tensor.mean(0, dtype=working_dtype(tensor))
        tensor.copy_(tensor - mean)  # a half-precision row less a float32 one is float32
    if masters:
        weight.copy_(masters[0])
