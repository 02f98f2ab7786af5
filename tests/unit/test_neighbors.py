import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agg_fairseq.metrics import nearest_neighbors


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
        patch.setattr(sys.modules["agg_fairseq.metrics.isotropy"], "CHUNK_ROWS", data.draw(st.integers(1, 30)))
        found = nearest_neighbors(weight, queries, k, excluded)
    for of_query, query, barred in zip(found, queries, excluded, strict=True):
        expected = slow_neighbors(weight.double(), query.double(), k, barred)
        assert [row for row, _ in of_query] == [row for row, _ in expected]
        assert [cosine for _, cosine in of_query] == pytest.approx([cosine for _, cosine in expected], abs=1e-9)
