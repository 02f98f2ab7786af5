"""Words in embeddings: their vectors, nearest neighbors, agreement with people."""

from collections.abc import Collection, Sequence

import torch
from torch import Tensor
from torch.nn.functional import normalize

from .isotropy import row_chunks

DECIMALS = 12  # of cosines, so that those that differ only by the order of a sum tie


def word_vectors(weight: Tensor, words: Sequence[Sequence[int]]) -> Tensor:
    """The vector of each word: the mean of the embeddings of its tokens.

    Args:
        weight: (V, D) embeddings.
        words: the tokens of each word, as rows of `weight`.

    Returns:
        (N, D) float64; zeros for a word of no tokens, and for one with a token whose embedding is
        all zeros.
    """
    vectors = torch.zeros(len(words), weight.size(1), dtype=torch.float64, device=weight.device)
    for vector, word in zip(vectors, words, strict=True):
        rows = weight.detach()[list(word)].double()  # n x D
        if len(rows) and rows.any(dim=1).all():
            vector.copy_(rows.mean(0))
    return vectors


def word_similarity(
    weight: Tensor,
    first: Sequence[Sequence[int]],
    second: Sequence[Sequence[int]],
    scores: Sequence[float],
) -> tuple[float | None, int]:
    """Spearman's rank correlation, with mean ranks for ties, between cosines of word vectors and
    human scores, without pairs of a word that has no vector.

    Args:
        weight: (V, D) embeddings.
        first: the tokens of the first word of each pair, as `word_vectors` takes them.
        second: those of the second word.
        scores: human scores of the similarity of each pair, on any scale.

    Returns:
        The correlation in [−1, 1], None where all cosines or scores are the same or there are fewer
        than two; and the number of covered pairs, those with a vector for both words.

    Reference: Yu et al. (2022), Sec. 5.2, Table 6.
    """
    left, right = word_vectors(weight, first), word_vectors(weight, second)
    covered = left.any(dim=1) & right.any(dim=1)
    left, right = left[covered], right[covered]
    cosines = (left * right).sum(1) / (left.norm(dim=1) * right.norm(dim=1))
    cosines = cosines.round(decimals=DECIMALS).cpu()
    human = torch.tensor(scores, dtype=torch.float64)[covered.cpu()]
    if len(cosines.unique()) < 2 or len(human.unique()) < 2:
        return None, len(cosines)

    from scipy.stats import spearmanr  # not at the top: SciPy is an optional dependency

    return float(spearmanr(cosines.numpy(), human.numpy())[0]), len(cosines)


def nearest_neighbors(
    weight: Tensor, queries: Tensor, k: int, excluded: Sequence[Collection[int]]
) -> list[list[tuple[int, float]]]:
    """The k rows of `weight` with the largest cosine to each query, in float64, rounded to 12
    decimals; ties go to the first row.

    Args:
        weight: (V, D) embeddings; rows of zeros are never neighbors.
        queries: (Q, D) vectors, none of them zero.
        k: number of neighbors, at least 1; fewer are returned where there are no more.
        excluded: for each query, the rows that are not returned.

    Returns:
        For each query, pairs of a row and its cosine, in [−1, 1], the nearest first.
    """
    directions = normalize(queries.detach().double(), dim=1, eps=torch.finfo(torch.float64).tiny)
    parts = []
    for rows in row_chunks(weight):
        cosines = directions @ rows.t() / rows.norm(dim=1)  # Q x n; NaN for a row of zeros
        cosines = cosines.round(decimals=DECIMALS).clamp(-1, 1)
        parts.append(cosines.nan_to_num(nan=-torch.inf))
    nearest = []
    for query_cosines, left_out in zip(torch.cat(parts, 1), excluded, strict=True):
        query_cosines[list(left_out)] = -torch.inf
        cosines, indices = query_cosines.sort(descending=True, stable=True)
        found = min(k, int(cosines.isfinite().sum()))
        nearest.append(list(zip(indices[:found].tolist(), cosines[:found].tolist(), strict=True)))
    return nearest
