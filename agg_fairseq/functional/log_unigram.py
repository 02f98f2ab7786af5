"""The starting bias of an output layer that takes frequency off the embeddings."""

from __future__ import annotations

from torch import Tensor


def log_unigram(counts: Tensor) -> Tensor:
    """The log-unigram bias `b[k] = log((c[k] + 1) / (Σ_j c[j] + V))`, from training counts.

    With this bias a model whose logits `H Wᵀ` are 0 predicts the training frequencies, so that the embeddings of rare
    tokens need not be pushed away from all features to make these tokens improbable.

    A token that never occurs would have the bias −∞. With one occurrence added to each token, `b` is the log of the
    posterior mean of the unigram probabilities under a uniform prior (Laplace's rule of succession): it is finite, the
    probabilities sum to 1, and with N training tokens those of the tokens seen change by at most V / N.

    Args:
        counts: (V,) c, how often each token is a target in the training data. (Their signs are not
            checked, since that would wait for a GPU; the log of a negative count is NaN or −∞.)

    Returns:
        (V,) float32, in nats; `logsumexp(b)` is 0.

    Reference: Meister et al. (2022), "A Natural Bias for Language Generation Models".

    Example:
        >>> import torch
        >>> (log_unigram(torch.tensor([6, 2, 0])).exp() * 11).round()
        tensor([7., 3., 1.])
    """
    smoothed = counts.double() + 1
    return (smoothed.log() - smoothed.sum().log()).float()
