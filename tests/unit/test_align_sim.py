import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agg_fairseq.metrics import FrequencyGroups, LinkCounts, align_sim, group_means, orthogonal_align_sim

V = 7
PAIRS = st.lists(st.tuples(st.integers(0, V - 1), st.integers(0, V - 1), st.integers(1, 9)), min_size=1, max_size=20)


def link_counts(*triples):
    return LinkCounts(*(torch.tensor(column) for column in zip(*triples, strict=True)))


def dense_align_sim(weight, links, temperature):
    """Eqs. 16–17, one word after the other."""
    vocabulary = len(weight)
    label = torch.zeros(vocabulary, vocabulary, dtype=torch.float64)
    for source, target, count in zip(links.source, links.target, links.count, strict=True):
        label[source, target] += count
        label[target, source] += count
    w = weight.double()
    cosines = torch.nn.functional.cosine_similarity(w[:, None], w[None], dim=2)
    inferred = (temperature * cosines).softmax(1)
    values = torch.nn.functional.cosine_similarity(label, inferred, dim=1)
    return torch.where(label.any(1), values, math.nan)


def close(found, expected):
    return torch.allclose(found, expected, rtol=1e-10, atol=1e-12, equal_nan=True)


@given(PAIRS, st.floats(0.01, 50), st.integers(1, 4))
def test_against_the_equations(pairs, temperature, dimensions):
    weight = torch.randn(V, dimensions)
    links = link_counts(*pairs)
    values = align_sim(weight, links, temperature=temperature)
    assert close(values, dense_align_sim(weight, links, temperature))
    assert torch.equal(links.tokens(), (~values.isnan()).nonzero().squeeze(1))


def test_rows_of_zeros_are_left_out():
    """The result is as if neither they nor their links existed; token 4 has no other link."""
    weight = torch.randn(5, 3)
    weight[1] = 0
    values = align_sim(weight, link_counts((0, 2, 2), (0, 1, 5), (1, 1, 3), (1, 4, 1), (3, 2, 1)))
    others = align_sim(weight[[0, 2, 3, 4]], link_counts((0, 1, 2), (2, 1, 1)))
    assert close(values[[0, 2, 3, 4]], others)
    assert values.isnan().tolist() == [False, True, False, False, True]
    assert align_sim(torch.zeros(2, 2), link_counts((0, 1, 1))).isnan().all()


@pytest.mark.parametrize("temperature", [1e-300, 1e-6, 700, 1e6, 1e300])
def test_any_temperature(temperature):
    """As τ goes to 0 all words have the same weight; as it goes to infinity only the word itself has any."""
    links = link_counts((0, 0, 3), (0, 1, 8), (2, 3, 1))
    values = align_sim(torch.randn(4, 3), links, temperature=temperature)
    # a(0) = (6, 8, 0, 0), â(0) = (1, 1, 1, 1) / 4
    expected = [14 / 20, 1 / 2, 1 / 2, 1 / 2] if temperature < 1 else [6 / 10, 0, 0, 0]
    assert values.tolist() == pytest.approx(expected, abs=1e-5)


@given(PAIRS, st.one_of(st.floats(0.01, 1000), st.sampled_from([1e-300, 1e-9, 1e300])))
def test_align_sim_of_orthogonal_embeddings(pairs, temperature):
    links = link_counts(*pairs)
    expected = align_sim(torch.eye(V), links, temperature=temperature)
    assert close(orthogonal_align_sim(links, V, temperature=temperature), expected)


def test_group_means_leave_out_nan():
    groups = FrequencyGroups(torch.tensor([0, 0, 1, 2, -1]))
    values = torch.tensor([0.25, math.nan, math.nan, 0.5, 1.5]).double()
    assert group_means(values, groups) == {"frequent": 0.25, "medium": None, "rare": 0.5, "total": 0.75}
    assert set(group_means(values * math.nan, groups).values()) == {None}
