import pytest
import torch

from agg_fairseq.metrics import WordSimilarity, word_similarity, word_vectors

ANGLES = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [-1.0, 0.0], [0.0, 0.0]])


def test_word_vectors_by_hand():
    vectors = word_vectors(ANGLES, [[1], [0, 2], [0, 1, 1], [], [0, 4], [0, 3]])
    expected = [[1, 1], [1 / 2, 1 / 2], [1, 2 / 3], [0, 0], [0, 0], [0, 0]]  # the last: (1, 0) and (−1, 0)
    assert vectors.dtype == torch.float64
    torch.testing.assert_close(vectors, torch.tensor(expected, dtype=torch.float64), rtol=1e-15, atol=0)
    assert word_vectors(ANGLES, []).shape == (0, 2)


def test_ties_by_hand():
    """Cosines 0.71, 0.71, 0: ranks 2.5, 2.5, 1; less the mean, (½, ½, −1) and (1, 0, −1): 1½ / √(1½ · 2) = √3 / 2."""
    found = word_similarity(ANGLES, [[0], [2], [0]], [[1], [1], [2]], [3, 2, 1])
    assert found == WordSimilarity(pytest.approx(3**0.5 / 2), 3)


def test_pairs_that_are_not_covered():
    """A word of no token, of a token of zeros, or of tokens whose mean is zero, on either side."""
    # of the others, cosines are 0.71, 0, −1 and scores 5, 1, 3: ranks 3, 2, 1 and 3, 1, 2, so 1 − 6 · 2 / (3 · 8)
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
