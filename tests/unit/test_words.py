import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agg_fairseq.metrics import nearest_neighbors, word_similarity, word_vectors

ANGLES = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [-1.0, 0.0], [0.0, 0.0]])


def test_word_vectors_by_hand():
    vectors = word_vectors(ANGLES, [[1], [0, 2], [0, 1, 1], [], [0, 4], [0, 3]])
    # the last: (1, 0) and (−1, 0)
    expected = torch.tensor([[1, 1], [1 / 2, 1 / 2], [1, 2 / 3], [0, 0], [0, 0], [0, 0]]).double()
    torch.testing.assert_close(vectors, expected, rtol=1e-7, atol=0)
    assert word_vectors(ANGLES, []).shape == (0, 2)


@pytest.mark.parametrize(
    ("first", "second", "scores", "covered"),
    [
        ([], [], [], 0),
        ([[0]], [[1]], [1], 1),
        ([[0], [0]], [[1], []], [1, 2], 1),
        ([[0], [0]], [[1], [2]], [3, 3], 2),  # scores all the same
        # cosines all 1, but for rounding
        ([[0], [1], [2], [3]], [[0], [1], [2], [3]], [1, 2, 3, 4], 4),
    ],
)
def test_what_is_not_defined(first, second, scores, covered):
    assert word_similarity(ANGLES, first, second, scores) == (None, covered)


def slow_neighbors(weight, query, k, excluded):
    cosines = {
        row: torch.dot(vector, query).item() / (vector.norm() * query.norm()).item()
        for row, vector in enumerate(weight)
        if vector.any() and row not in excluded
    }
    return sorted(cosines.items(), key=lambda item: (-round(item[1], 9), item[0]))[:k]


@given(st.integers(1, 25), st.integers(1, 12), st.integers(0, 1000), st.data())
def test_against_all_cosines_sorted(size, k, seed, data):
    """Small whole numbers, so that many rows are zero, equal, or of the same direction."""
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randint(-1, 3, (size, 2), generator=generator).float()
    queries = torch.randn(3, 2, generator=generator)
    excluded = [data.draw(st.sets(st.integers(0, size - 1))) for _ in queries]
    with pytest.MonkeyPatch.context() as patch:
        chunk = data.draw(st.integers(1, 30))
        patch.setattr(sys.modules["agg_fairseq.metrics.isotropy"], "CHUNK_ROWS", chunk)
        found = nearest_neighbors(weight, queries, k, excluded)
    for query_neighbors, query, barred in zip(found, queries, excluded, strict=True):
        cosines = dict(query_neighbors)
        expected = dict(slow_neighbors(weight.double(), query.double(), k, barred))
        assert [*cosines] == [*expected] and cosines == pytest.approx(expected, abs=1e-9)
