"""Whether embeddings find the words alike that people do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

DECIMALS = 12
"""Cosines are rounded to so many, so that those that are equal but for the order of a sum are tied."""


@dataclass(frozen=True)
class WordSimilarity:
    """Agreement with the human scores of pairs of words.

    Args:
        spearman: rank correlation in [−1, 1] over the covered pairs; None for fewer than two, or where all cosines or
            all scores are the same.
        covered: how many pairs have a vector for both words.
    """

    spearman: float | None
    covered: int


def word_vectors(weight: Tensor, words: Sequence[Sequence[int]]) -> Tensor:
    """The vector of each word: the mean of the embeddings of its tokens.

    Args:
        weight: (V, D) embeddings.
        words: the tokens of each, as rows of `weight`.

    Returns:
        (N, D) float64; zeros for a word of no tokens, and for one with a token whose embedding is all zeros.

    Raises:
        ValueError: `weight` is no matrix, or a token is not one of its rows or holds a value that is not finite.
    """
    if weight.dim() != 2:
        raise ValueError(f"expected embeddings of shape (V, D), got {tuple(weight.shape)}")
    for word in words:
        if not all(0 <= token < len(weight) for token in word):
            raise ValueError(f"expected tokens from 0 to {len(weight) - 1}, got {list(word)}")
    vectors = [_mean(weight.detach()[list(word)].double()) for word in words]
    return torch.stack(vectors) if vectors else weight.new_zeros(0, weight.shape[1], dtype=torch.float64)


def word_similarity(
    weight: Tensor, first: Sequence[Sequence[int]], second: Sequence[Sequence[int]], scores: Sequence[float]
) -> WordSimilarity:
    """Spearman's rank correlation, with mean ranks for ties, of cosines of word vectors and human scores.

    Pairs of which a word has no vector, as `word_vectors` says, are left out.

    Args:
        weight: (V, D) embeddings.
        first: the tokens of the first word of each pair, as rows of `weight`; none for a word that is not covered.
        second: those of the second word.
        scores: how alike people find the two, on any scale.

    Returns:
        WordSimilarity.

    Raises:
        ValueError: there are not as many first words, second words and scores; or as `word_vectors`.

    Reference: Yu et al. (2022), Sec. 5.2, Table 6.
    """
    if not len(first) == len(second) == len(scores):
        raise ValueError(f"expected as many words as scores, got {len(first)}, {len(second)} and {len(scores)}")
    ones, others = word_vectors(weight, first), word_vectors(weight, second)
    covered = ones.any(dim=1) & others.any(dim=1)
    ones, others = ones[covered], others[covered]
    cosines = ((ones * others).sum(1) / (ones.norm(dim=1) * others.norm(dim=1))).round(decimals=DECIMALS)
    human = torch.tensor(scores, dtype=torch.float64)[covered.cpu()]
    return WordSimilarity(_spearman(cosines.cpu(), human), len(cosines))


def _mean(rows: Tensor) -> Tensor:
    """(D,) of the embeddings (n, D) of a word's tokens."""
    if not rows.isfinite().all():
        raise ValueError("expected finite embeddings, got an infinity or NaN")
    has_all = len(rows) > 0 and bool(rows.any(dim=1).all())
    return rows.mean(0) if has_all else rows.new_zeros(rows.shape[1])


def _spearman(cosines: Tensor, scores: Tensor) -> float | None:
    from scipy.stats import spearmanr

    if any(len(side.unique()) < 2 for side in (cosines, scores)):
        return None
    return float(spearmanr(cosines.numpy(), scores.numpy())[0])
