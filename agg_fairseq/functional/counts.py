"""Training counts: checked where they come in, and as the log-unigram bias of Meister et al.
(2022), "A Natural Bias for Language Generation Models"."""

from torch import Tensor


def whole_counts(counts: Tensor, vocabulary: int | None = None) -> Tensor:
    """The counts (V,) as int64.

    Those of an integer dtype are not looked at, so that the host does not wait for a GPU. Others
    are rounded, since a moving average of checkpoints is not exact.

    Raises:
        ValueError: the shape is not (`vocabulary`,); or a number is negative, above 2^53, or not
            whole within a thousandth, such as a share of a text, or NaN.

    Examples:
        >>> import torch
        >>> whole_counts(torch.tensor([3.0, 0.0]))
        tensor([3, 0])
    """
    if counts.dim() != 1 or vocabulary not in (None, len(counts)):
        size = "V" if vocabulary is None else vocabulary
        raise ValueError(f"expected counts of {size} tokens, got shape {tuple(counts.shape)}")
    if not counts.is_floating_point():
        return counts.long()
    rounded = counts.double().round()
    is_whole = (counts.double() - rounded).abs() <= 1e-3 * rounded
    if not (is_whole & (rounded >= 0) & (rounded <= 2**53)).all():
        raise ValueError(
            f"expected counts of {len(counts)} tokens, whole numbers from 0 to 2^53, got {counts}"
        )
    return rounded.long()


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
    smoothed = whole_counts(counts).double() + 1
    return (smoothed.log() - smoothed.sum().log()).float()
