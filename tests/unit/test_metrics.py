"""Isotropy, cosine, groups and next-token statistics on cases worked by hand, and against numpy."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agg_fairseq.metrics import (
    frequency_groups,
    isotropy,
    mean_cosine,
    mean_cosine_between,
    mean_inner_product,
    principal_projection,
    relative_frequency_groups,
    singular_values,
)


def test_isotropy_of_a_cross_is_one():
    """±e1, ±e2: Z is 2 + 2 cosh 1 in each of the eigen-directions."""
    cross = torch.tensor([[1.0, 0], [-1, 0], [0, 1], [0, -1]])
    assert isotropy(cross) == pytest.approx(1.0)
    assert mean_cosine(cross) == pytest.approx((0 - 4) / 16)


def test_isotropy_by_hand():
    """One row (2, 0): eigenvectors e1 and e2, Z(±e1) = e^±2 by eigh's sign, Z(e2) = 1. So I is e^−2."""
    assert isotropy(torch.tensor([[2.0, 0.0]])) == pytest.approx(math.exp(-2))


def test_isotropy_against_numpy():
    w = np.random.default_rng(0).normal(0.3, 1, (50, 7))
    _, vectors = np.linalg.eigh(w.T @ w)
    z = np.exp(w @ vectors).sum(0)
    assert isotropy(torch.from_numpy(w)) == pytest.approx(z.min() / z.max(), rel=1e-9)


def test_isotropy_over_both_signs():
    """Rows (2, 0) and (0, 1): Z(±e1) = e^±2 + 1 and Z(±e2) = 1 + e^±1, so the extremes are those of ±e1."""
    w = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
    expected = (math.exp(-2) + 1) / (math.exp(2) + 1)
    assert isotropy(w, both_signs=True) == pytest.approx(expected)
    assert isotropy(-w, both_signs=True) == pytest.approx(expected)


def test_isotropy_survives_large_embeddings():
    assert 0 <= isotropy(torch.randn(20, 4) * 1e4) <= 1


def test_mean_cosine_against_all_pairs():
    w = torch.randn(30, 6, dtype=torch.float64) + 0.5
    cosines = torch.nn.functional.cosine_similarity(w[:, None], w[None], dim=2)
    assert mean_cosine(w) == pytest.approx((cosines.sum().item() - 30) / 900)
    assert mean_cosine_between(w[:10], w[10:]) == pytest.approx(cosines[:10, 10:].mean().item())


def test_rows_of_zeros_have_no_direction():
    w = torch.randn(9, 3)
    assert mean_cosine(torch.cat([w, torch.zeros(2, 3)])) == pytest.approx(mean_cosine(w))
    assert math.isnan(mean_cosine(torch.zeros(2, 3))) and math.isnan(mean_cosine_between(w, torch.zeros(2, 3)))


def test_singular_values_against_numpy():
    w = torch.randn(40, 6)
    expected = np.linalg.svd(w.double().numpy(), compute_uv=False)
    torch.testing.assert_close(singular_values(w), torch.from_numpy(expected / expected[0]), rtol=1e-6, atol=1e-9)


def test_projection_keeps_the_leading_singular_values():
    w = torch.randn(40, 6) + 1
    projected = principal_projection(w)
    expected = np.linalg.svd(w.double().numpy(), compute_uv=False)[:2]
    np.testing.assert_allclose(projected.norm(dim=0).numpy(), expected)
    assert (projected.mean(0) >= 0).all()


@pytest.mark.parametrize("measure", [isotropy, mean_cosine, singular_values])
@pytest.mark.parametrize("bad", [torch.zeros(0, 3), torch.zeros(3), torch.tensor([[math.nan, 0.0]])])
def test_bad_embeddings(measure, bad):
    with pytest.raises(ValueError, match="expected"):
        measure(bad)


def test_groups_by_hand():
    """Ten tokens ranked 9, 8, … by count, the first three excluded: 7 in groups of 30/50/20%: 2, 4, 1."""
    groups = frequency_groups(torch.arange(10), excluded=(9, 8, 7))
    assert [groups.members(name).tolist() for name in groups.names] == [[5, 6], [1, 2, 3, 4], [0]]
    assert groups.sizes() == {"frequent": 2, "medium": 4, "rare": 1}


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=60))
def test_groups_are_a_partition_in_order(counts):
    counts = torch.tensor(counts)
    groups = frequency_groups(counts)
    members = torch.cat([groups.members(name) for name in groups.names])
    assert sorted(members.tolist()) == list(range(len(counts)))
    lowest = [counts[groups.members(name)].min() for name in groups.names if len(groups.members(name))]
    assert lowest == sorted(lowest, reverse=True)


def test_mean_inner_product_against_all_pairs():
    w = torch.randn(12, 4, dtype=torch.float64)
    products = w @ w.t()
    expected = (products.sum() - products.trace()) / (12 * 11)
    assert mean_inner_product(w) == pytest.approx(expected.item(), rel=1e-12)
    assert math.isnan(mean_inner_product(w[:1]))


def test_relative_frequency_groups_by_hand():
    """Of 1,000,000 tokens: 10 are 1e-5 exactly, still frequent; 1 is 1e-6, still medium; 0 is rare."""
    counts = torch.tensor([0, 999_976, 10, 9, 1, 4, 0])
    groups = relative_frequency_groups(counts, excluded=(0,))
    assert groups.of_token.tolist() == [-1, 0, 0, 1, 1, 1, 2]
    with pytest.raises(ValueError, match="not all zero"):
        relative_frequency_groups(torch.zeros(3, dtype=torch.int64))
