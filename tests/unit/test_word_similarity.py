"""Agreement with human scores: by hand, against ranks worked out otherwise, and degenerate pairs."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agg_fairseq.metrics import WordSimilarity, word_similarity, word_vectors

ANGLES = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [-1.0, 0.0], [0.0, 0.0]])
PAIRS = st.lists(
    st.tuples(st.lists(st.integers(0, 5), max_size=2), st.lists(st.integers(0, 5), max_size=2), st.integers(0, 4)),
    min_size=1,
    max_size=12,
)


def test_word_vectors_by_hand():
    vectors = word_vectors(ANGLES, [[1], [0, 2], [0, 1, 1], [], [0, 4], [0, 3]])
    expected = [[1, 1], [1 / 2, 1 / 2], [1, 2 / 3], [0, 0], [0, 0], [0, 0]]  # the last: (1, 0) and (−1, 0)
    assert vectors.dtype == torch.float64
    torch.testing.assert_close(vectors, torch.tensor(expected, dtype=torch.float64), rtol=1e-15, atol=0)
    assert word_vectors(ANGLES, []).shape == (0, 2)


def test_spearman_by_hand():
    """Cosines 0.71, 0, −1 and scores 5, 1, 3: ranks 3, 2, 1 and 3, 1, 2, so 1 − 6 (0 + 1 + 1) / (3 · 8) = 1/2."""
    assert word_similarity(ANGLES, [[0]] * 3, [[1], [2], [3]], [5, 1, 3]) == WordSimilarity(pytest.approx(0.5), 3)


def test_ties_by_hand():
    """Cosines 0.71, 0.71, 0 and scores 3, 2, 1: ranks 2.5, 2.5, 1 and 3, 2, 1.

    Less their mean 2: (½, ½, −1) and (1, 0, −1), so 1½ / √(1½ · 2) = √3 / 2.
    """
    found = word_similarity(ANGLES, [[0], [2], [0]], [[1], [1], [2]], [3, 2, 1])
    assert found == WordSimilarity(pytest.approx(3**0.5 / 2), 3)


def test_pairs_that_are_not_covered():
    """A word of no token, of a token of zeros, or of tokens whose mean is zero, on either side."""
    first = [[0], [], [0], [4], [0], [0, 3], [0], [0]]
    second = [[1], [0], [], [0], [1, 4], [1], [2], [3]]
    found = word_similarity(ANGLES, first, second, [5, 9, 9, 9, 9, 9, 1, 3])
    assert found == WordSimilarity(pytest.approx(0.5), 3)


@pytest.mark.parametrize(
    ("first", "second", "scores", "covered"),
    [
        ([], [], [], 0),
        ([[0]], [[1]], [1], 1),
        ([[0], [0]], [[1], []], [1, 2], 1),
        ([[0], [0]], [[1], [2]], [3, 3], 2),  # scores all the same
        ([[0], [1], [2], [3]], [[0], [1], [2], [3]], [1, 2, 3, 4], 4),  # cosines all 1, but for rounding
    ],
)
def test_what_is_not_defined(first, second, scores, covered):
    assert word_similarity(ANGLES, first, second, scores) == WordSimilarity(None, covered)


def test_embeddings_on_one_line_are_all_alike():
    """Cosines that differ only in the last bit are tied."""
    line = torch.rand(20, 1) * torch.rand(1, 7)
    words = [[index] for index in range(20)]
    assert word_similarity(line, words, words[::-1], range(20)).spearman is None


def ranks(values):
    """The rank of a value: 1, plus the number of smaller ones, plus half the number of other equal ones."""
    return [1 + sum(o < v for o in values) + (sum(o == v for o in values) - 1) / 2 for v in values]


def slow_word_similarity(weight, pairs):
    cosines, scores = [], []
    for first, second, score in pairs:
        words = [[weight[token] for token in word] for word in (first, second)]
        if all(words) and all(row.any() for word in words for row in word):
            one, other = (sum(word) / len(word) for word in words)
            if one.any() and other.any():
                cosines.append(round((one @ other / one.norm() / other.norm()).item(), 9))
                scores.append(score)
    if len(set(cosines)) < 2 or len(set(scores)) < 2:
        return None, len(cosines)
    both = torch.tensor([ranks(cosines), ranks(scores)], dtype=torch.float64)
    return torch.corrcoef(both)[0, 1].item(), len(cosines)


@settings(max_examples=200, deadline=None)
@given(PAIRS)
def test_against_a_slow_form(pairs):
    weight = torch.randn(6, 3, generator=torch.Generator().manual_seed(1))
    weight[5] = 0
    spearman, covered = slow_word_similarity(weight.double(), pairs)
    expected = WordSimilarity(None if spearman is None else pytest.approx(spearman, abs=1e-9), covered)
    assert word_similarity(weight, *zip(*pairs, strict=True)) == expected


def test_rows_that_are_not_finite():
    with pytest.raises(ValueError, match="finite"):
        word_vectors(torch.tensor([[1.0, float("nan")]]), [[0]])
