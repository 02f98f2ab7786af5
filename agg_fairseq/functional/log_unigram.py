"""The log-unigram bias of Meister et al. (2022), "A Natural Bias for Language Generation
Models"."""

from torch import Tensor


def log_unigram(counts: Tensor) -> Tensor:
    """The bias `b[k] = log((c[k] + 1) / (Σ_j c[j] + V))` in nats, (V,) float32, from training
    counts c (V,) of targets.

    With this bias a model whose logits `H Wᵀ` are 0 predicts the training frequencies, so that the
    embeddings of rare tokens need not be pushed away from all features to make these tokens
    improbable. One occurrence is added to each token (Laplace's rule), so that the bias of a token
    that never occurs is finite.

    Examples:
        >>> import torch
        >>> (log_unigram(torch.tensor([6, 2, 0])).exp() * 11).round()
        tensor([7., 3., 1.])
    """
    smoothed = counts.double() + 1
    return (smoothed.log() - smoothed.sum().log()).float()


def whole_counts(counts: Tensor, vocabulary: int) -> Tensor:
    """The counts (V,) as int64; ValueError for another shape, or a count that is not in [0, 2^53],
    such as NaN."""
    rounded = counts.double().round()
    if rounded.shape != (vocabulary,) or not ((rounded >= 0) & (rounded <= 2**53)).all():
        raise ValueError(f"expected counts of {vocabulary} tokens, from 0 to 2^53, got {counts}")
    return rounded.long()
