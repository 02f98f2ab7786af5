"""The log-unigram bias of Meister et al. (2022), "A Natural Bias for Language Generation Models"."""

from torch import Tensor

from .gates import whole_counts


def log_unigram(counts: Tensor) -> Tensor:
    """The bias `b[k] = log((c[k] + 1) / (Σ_j c[j] + V))` in nats, (V,) float32, from training
    counts c (V,) of targets.

    With this bias a model whose logits `H Wᵀ` are 0 predicts the training frequencies. One
    occurrence is added to each token (Laplace's rule), so that all entries are finite.

    Examples:
        >>> import torch
        >>> (log_unigram(torch.tensor([6, 2, 0])).exp() * 11).round()
        tensor([7., 3., 1.])
    """
    smoothed = whole_counts(counts).double() + 1
    return (smoothed.log() - smoothed.sum().log()).float()
