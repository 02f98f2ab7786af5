"""Word similarity: do embeddings find the same words similar as people do?"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

DECIMALS = 12  # decimals to which cosines are rounded, so that those that differ only by the order of a sum are tied


@dataclass(frozen=True)
class WordSimilarity:
    """Agreement with the human scores of pairs of words."""

    # Rank correlation in [−1, 1]; None for fewer than two covered pairs, or where all cosines or scores are the same.
    spearman: float | None
    covered: int  # number of pairs with a vector for both words


def word_vectors(weight: Tensor, words: Sequence[Sequence[int]]) -> Tensor:
    """The vector of each word: the mean of the embeddings of its tokens.

    Args:
        weight: (V, D) embeddings; ValueError if a row that is used is not finite.
        words: the tokens of each word, as rows of `weight`.

    Returns:
        (N, D) float64; zeros for a word of no tokens, and for one with a token whose embedding is all zeros.
    """
    vectors = []
    for word in words:
        rows = weight.detach()[list(word)].double()  # n x D
        if not rows.isfinite().all():
            raise ValueError("expected finite embeddings, got an infinity or NaN")
        has_all = len(rows) > 0 and bool(rows.any(dim=1).all())
        vectors.append(rows.mean(0) if has_all else rows.new_zeros(rows.shape[1]))
    return torch.stack(vectors) if vectors else weight.new_zeros(0, weight.shape[1], dtype=torch.float64)


def word_similarity(
    weight: Tensor, first: Sequence[Sequence[int]], second: Sequence[Sequence[int]], scores: Sequence[float]
) -> WordSimilarity:
    """Spearman's rank correlation, with mean ranks for ties, between cosines of word vectors and human scores.

    Pairs with a word that has no vector (see `word_vectors`) are excluded.

    Args:
        weight: (V, D) embeddings.
        first: the tokens of the first word of each pair, as rows of `weight`; none for a word that is not covered.
        second: those of the second word.
        scores: human scores of the similarity of each pair, on any scale.

    Reference: Yu et al. (2022), Sec. 5.2, Table 6.
    """
    left, right = word_vectors(weight, first), word_vectors(weight, second)
    covered = left.any(dim=1) & right.any(dim=1)
    left, right = left[covered], right[covered]
    cosines = ((left * right).sum(1) / (left.norm(dim=1) * right.norm(dim=1))).round(decimals=DECIMALS).cpu()
    human = torch.tensor(scores, dtype=torch.float64)[covered.cpu()]
    if any(len(side.unique()) < 2 for side in (cosines, human)):  # also where fewer than two pairs are covered
        return WordSimilarity(None, len(cosines))

    from scipy.stats import spearmanr  # not at the top: SciPy is an optional dependency

    return WordSimilarity(float(spearmanr(cosines.numpy(), human.numpy())[0]), len(cosines))
