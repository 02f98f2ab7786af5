import pytest
import torch

from agg_fairseq.functional import agg_gates, rare_tokens

A = torch.tensor([100, 40, 6, 3, 1, 0])  # appearances in a window of 100 updates: rates 1, .4, .06, .03, .01, 0


def test_the_threshold_is_strict_and_special_tokens_are_never_rare():
    assert rare_tokens(A, 100, alpha=0.03).tolist() == [False, False, False, False, True, True]
    special = torch.tensor([True, False, False, False, False, True])
    assert rare_tokens(A, 100, alpha=0.5, never_rare=special).tolist() == [False, True, True, True, True, False]


@pytest.mark.parametrize("rare", [torch.zeros(6, dtype=torch.bool), A == 0, torch.ones(6, dtype=torch.bool)])
def test_nothing_is_nan(rare):
    """Where no rare token has appeared, g2 is 1."""
    gates = agg_gates(A, 100, rare)
    for gate in (gates.g1, gates.g2):
        assert ((gate >= 0) & (gate <= 1)).all()
    assert (gates.g2 == 1).all() or rare.all()


def test_gates_by_hand():
    """g1 = a/100; the mean of a over R = {2, 3, 4, 5} is 10/4 = 2.5, so g2 = 1, 1, 0.4, 0."""
    rare = rare_tokens(A, 100, alpha=0.1)
    gates = agg_gates(A, 100, rare)
    assert rare.tolist() == [False, False, True, True, True, True]
    torch.testing.assert_close(gates.g1[2:], torch.tensor([0.06, 0.03, 0.01, 0.0]))
    torch.testing.assert_close(gates.g2[2:], torch.tensor([1.0, 1.0, 0.4, 0.0]))
    assert agg_gates(A, 100, rare, which="g1").g2 is None
    assert agg_gates(A, 100, rare, which="g2").g1 is None


@pytest.mark.parametrize("fraction", [0.01, 0.25, 0.5, 0.99])
@pytest.mark.parametrize("a", [torch.zeros(400).long(), torch.arange(400) // 100, torch.arange(400) * 7 % 400])
def test_a_fraction_is_exact_whatever_the_ties(fraction, a):
    """Of equal tokens, the higher index is rarer."""
    v, never = len(a), torch.arange(len(a)) < 4
    rare = rare_tokens(a, 10, rare_fraction=fraction, never_rare=never)
    assert int(rare.sum()) == int(fraction * (v - 4) + 0.5)
    assert not rare[:4].any()
    order = v * a - torch.arange(v)
    assert order[rare].max() < order[~rare & ~never].min()
