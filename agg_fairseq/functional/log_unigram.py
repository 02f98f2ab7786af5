"""The log-unigram bias of Meister et al. (2022), "A Natural Bias for Language Generation Models"."""

from torch import Tensor


def log_unigram(counts: Tensor) -> Tensor:
    """The bias `b[k] = log((c[k] + 1) / (Σ_j c[j] + V))` in nats, (V,) float32, from training counts c (V,) of targets.

    With this bias a model whose logits `H Wᵀ` are 0 predicts the training frequencies, so that the embeddings of rare
    tokens need not be pushed away from all features to make these tokens improbable. One occurrence is added to each
    token (Laplace's rule), so that the bias of a token that never occurs is finite.

    Examples:
        >>> import torch
        >>> (log_unigram(torch.tensor([6, 2, 0])).exp() * 11).round()
        tensor([7., 3., 1.])
    """
    smoothed = counts.double() + 1
    return (smoothed.log() - smoothed.sum().log()).float()


def checked_counts(name: str, counts: Tensor, vocabulary: int) -> Tensor:
    """The counts (V,) in whole numbers, int64; ValueError for another shape, or one that is not in [0, 2^53]."""
    rounded = counts.double().round()
    wrong = rounded[~((rounded >= 0) & (rounded <= 2**53))]  # NaN is neither
    if tuple(counts.shape) != (vocabulary,) or len(wrong):
        problem = f"{wrong[0].item():g} among them" if len(wrong) else f"shape {tuple(counts.shape)}"
        raise ValueError(f"{name}: expected the counts of {vocabulary} tokens, got {problem}")
    return rounded.long()
