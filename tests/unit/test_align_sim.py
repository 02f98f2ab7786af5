import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from agg_fairseq.metrics import (
    FrequencyGroups,
    LinkCounts,
    align_sim,
    group_means,
    orthogonal_align_sim,
)

V = 7
PAIRS = st.lists(
    st.tuples(st.integers(0, V - 1), st.integers(0, V - 1), st.integers(1, 9)),
    min_size=1,
    max_size=20,
)


def link_counts(*triples):
    return LinkCounts(*(torch.tensor(column) for column in zip(*triples, strict=True)))


def dense_align_sim(weight, links):
    """Eqs. 16–17, one word after the other."""
    label = torch.zeros(len(weight), len(weight), dtype=torch.float64)
    for source, target, count in zip(links.source, links.target, links.count, strict=True):
        label[source, target] += count
        label[target, source] += count
    w = weight.double()
    inferred = (10 * torch.nn.functional.cosine_similarity(w[:, None], w[None], dim=2)).softmax(1)
    values = torch.nn.functional.cosine_similarity(label, inferred, dim=1)
    return torch.where(label.any(1), values, math.nan)


def close(found, expected):
    return torch.allclose(found, expected, rtol=1e-10, atol=1e-12, equal_nan=True)


@given(PAIRS, st.integers(1, 4))
def test_against_the_equations(pairs, dimensions):
    weight, links = torch.randn(V, dimensions).double(), link_counts(*pairs)
    values = align_sim(weight, links)
    assert close(values, dense_align_sim(weight, links))
    assert torch.allclose(values, align_sim(weight.float(), links), rtol=1e-5, equal_nan=True)
    assert torch.equal(links.tokens(), (~values.isnan()).nonzero().squeeze(1))
    assert close(orthogonal_align_sim(links, V), align_sim(torch.eye(V).double(), links))


def test_rows_of_zeros_are_left_out():
    """The result is as if neither they nor their links existed; token 4 has no other link."""
    weight = torch.randn(5, 3).double()
    weight[1] = 0
    values = align_sim(weight, link_counts((0, 2, 2), (0, 1, 5), (1, 1, 3), (1, 4, 1), (3, 2, 1)))
    others = align_sim(weight[[0, 2, 3, 4]], link_counts((0, 1, 2), (2, 1, 1)))
    assert close(values[[0, 2, 3, 4]], others)
    assert values.isnan().tolist() == [False, True, False, False, True]
    assert align_sim(torch.zeros(2, 2), link_counts((0, 1, 1))).isnan().all()


def test_group_means_leave_out_nan():
    groups = FrequencyGroups(torch.tensor([0, 0, 1, 2, -1]))
    values = torch.tensor([0.25, math.nan, math.nan, 0.5, 1.5]).double()
    expected = {"frequent": 0.25, "medium": None, "rare": 0.5, "total": 0.75}
    assert group_means(values, groups) == expected
    assert set(group_means(values * math.nan, groups).values()) == {None}
