"""Who is rare, and the gates of each method, by hand and against their equations in float64."""

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import grad
from torch.testing import assert_close

from agg_fairseq.functional import (
    agg_gates,
    agps_gates,
    freezing_gates,
    rare_tokens,
    rarest,
    tokens_from_rank,
)
from agg_fairseq.gating import AgpsGating
from tests.losses import summed_nll

# appearances in a window of 100 updates: rates 1, .4, .06, .03, .01, 0
A = torch.tensor([100, 40, 6, 3, 1, 0])


def test_a_window_has_an_update():
    for function in (lambda n: rare_tokens(A, n, alpha=0.03), lambda n: agg_gates(A, n, A < 10)):
        with pytest.raises(ValueError, match="expected updates of at least 1, got 0"):
            function(0)


@pytest.mark.parametrize("rare", [A < 0, A == 0, A >= 0])
def test_gates_are_between_0_and_1(rare):
    """Also where a rare token appears several times per update. Where none has appeared, g2 is 1."""
    gates = agg_gates(A, 50, rare)
    assert all(((gate >= 0) & (gate <= 1)).all() for gate in (gates.g1, gates.g2))
    assert (gates.g2 == 1).all() or rare.all()


def test_one_gate_alone():
    both = agg_gates(A, 100, A < 10)
    g1, g2 = (agg_gates(A, 100, A < 10, which=name) for name in ("g1", "g2"))
    assert g1.g1.equal(both.g1) and g2.g2.equal(both.g2) and g1.g2 is g2.g1 is None


@pytest.mark.parametrize("fraction", [0.01, 0.25, 0.5, 0.99])
def test_a_fraction_of_the_tokens_that_occur(fraction):
    """The threshold is that of the nearest size. Tokens that do not occur are rare, and excluded
    ones are not, whatever their number."""
    index = torch.arange(400)
    excluded = index < 100
    for a in (index * 0, index // 100, index * 7 % 400, (index - 150).clamp(min=0), 9 + index % 2):
        rare = rarest(a, fraction, excluded)
        occurs = ~excluded & (a > 0)
        size = int(fraction * occurs.sum() + 0.5)
        sizes = {int((occurs & (a <= q)).sum()) for q in a[occurs].tolist() if size}
        found = int((rare & occurs).sum())
        assert abs(found - size) == min((abs(one - size) for one in sizes), default=0)
        assert rare[~excluded & (a == 0)].all() and not rare[excluded].any()
        assert rare[~excluded].equal(a[~excluded] <= a[rare].max())


# AGPS

RARE = torch.arange(8) >= 4
COUNTS, MU1, MU2 = torch.tensor([90, 60, 40, 25, 9, 4, 12, 1]), 10.0, 4.0


def problem():
    h, w = (torch.randn(size, 3).double().requires_grad_() for size in (12, 8))
    return h, w, torch.randint(6, (12,))  # 6 and 7 are absent


def gated_sum(h, w, y, gate):
    """dL/dW: (P − Q) H, where `gate` of a token and a target multiplies what pushes the token."""
    residual = (h @ w.t()).softmax(1).detach()
    for i, target in enumerate(y.tolist()):
        for token in range(len(w)):
            residual[i, token] *= 1 if token == target else gate(token, target)
        residual[i, target] -= 1
    return residual.t() @ h.detach()


def algorithm1(h, w, y, counts, mu2):
    """Algorithm 1 of the appendix, its lines 1 to 18."""
    clipped = counts.clip(max=MU1)
    f1 = (clipped / MU1).double()
    f2 = (clipped / mu2).clip(max=1).double()
    word = torch.zeros(len(w), dtype=w.dtype)
    word[y] = 1
    word[~RARE] = 1
    word_rev = (1 - word) * f2
    word = (word + f1).clip(max=1)
    masked = word[:, None] * w + (1 - word)[:, None] * w.detach()
    masked_rev = word_rev[:, None] * w + (1 - word_rev)[:, None] * w.detach()
    is_rare = RARE[y]
    first = F.cross_entropy(h @ masked.t(), y, reduction="sum")
    second = F.cross_entropy(h.detach()[is_rare] @ masked_rev.t(), y[is_rare], reduction="sum")
    return first + second


def gates(y, **changes):
    present = torch.bincount(y, minlength=8) > 0
    rare = tokens_from_rank(COUNTS, 4)
    return agps_gates(COUNTS, present, rare, **({"mu1": MU1, "mu2": MU2} | changes))


def test_equation_15():
    def gate(token, target):
        mu = MU2 if RARE[target] else MU1
        return min(COUNTS[token].item() / mu, 1) if RARE[token] and token not in y else 1

    h, w, y = problem()
    loss = summed_nll(h, w, y, gates=gates(y))
    assert_close(grad(loss, w)[0], gated_sum(h, w, y, gate))


@pytest.mark.parametrize("mu2", [4.0, 25.0])
def test_algorithm_1(mu2):
    """Its value is the first part: the second only routes gradients."""
    h, w, y = problem()
    loss = summed_nll(h, w, y, gates=gates(y, variant="algorithm1", mu2=mu2))
    expected = grad(algorithm1(h, w, y, COUNTS, mu2), (h, w))
    assert_close(grad(loss, (h, w)), expected)


def test_the_batches_of_a_training():
    options = {"rare_rank": 4, "mu1": MU1, "mu2": MU2, "excluded": torch.arange(8) == 7}
    gating = AgpsGating(8, counts=COUNTS, **options)
    rare = gating.gates(None).rare
    assert rare.nonzero().flatten().tolist() == [4, 5, 6]
    found = gating.bfloat16().gates(torch.tensor([[0, 5], [-100, 5]]))
    expected = gates(torch.tensor([0, 5]))
    assert found.g1[rare].equal(expected.g1[rare]) and found.g2[rare].equal(expected.g2[rare])
    assert found.g1[5] == 1 and found.g1[4] < 1
    assert (gating.gates(None).g1[[4, 5]] < 1).all()


@pytest.mark.parametrize("parts", ["b", "c", "bc"])
def test_freezing_of_parts_of_equation_4(parts):
    def gate(token, target):
        return not RARE[token] or ("c" if RARE[target] else "b") not in parts

    h, w, y = problem()
    loss = summed_nll(h, w, y, gates=freezing_gates(RARE, parts))
    assert_close(grad(loss, w)[0], gated_sum(h, w, y, gate))
