"""Frequency-aware cross-entropy: tokens weigh less the more often the model itself outputs them (Jiang et al. 2019)."""

from __future__ import annotations

import torch
from torch import Tensor


def face_weights(frequency: Tensor) -> Tensor:
    """The weights of FACE with pre-weight: `1 − f[k] / max f`, scaled to a mean of 1 over the vocabulary.

    The most frequent token so weighs 0, a token that was never output the most.

    Args:
        frequency: (V,) f, not negative: how often each token was output (OPR) or is in the training set.

    Returns:
        (V,) float32, the weight of the likelihood at positions with that target. All 1 where nothing was output yet,
        or all tokens equally often.

    Reference: Jiang et al. (2019), "Improving Neural Response Diversity with Frequency-Aware Cross-Entropy Loss";
    FACE-OPR in the tables of Choi et al. (2020).
    """
    f = frequency.double()
    weight = 1 - f / f.max().clamp(min=1)
    total = weight.sum()
    return torch.where(total > 0, weight * (len(f) / total), torch.ones_like(weight)).float()
