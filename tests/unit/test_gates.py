"""Who is rare, and the gates of each method, by hand and against their equations in float64."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from agg_fairseq.functional import (
    agg_gates,
    agps_gates,
    freezing_gates,
    gated_likelihood,
    rare_tokens,
    rarest,
    tokens_from_rank,
)
from agg_fairseq.objective import AgpsObjective

# appearances in a window of 100 updates: rates 1, .4, .06, .03, .01, 0
A = torch.tensor([100, 40, 6, 3, 1, 0])


def test_the_threshold_is_strict_and_special_tokens_are_never_rare():
    assert rare_tokens(A, 100, alpha=0.03).tolist() == [False, False, False, False, True, True]
    special = torch.tensor([True, False, False, False, False, True])
    assert rare_tokens(A, 100, alpha=0.5, excluded=special).tolist() == [
        False, True, True, True, True, False,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "rare", [torch.zeros(6, dtype=torch.bool), A == 0, torch.ones(6, dtype=torch.bool)]
)
def test_nothing_is_nan(rare):
    """Where no rare token has appeared, g2 is 1."""
    gates = agg_gates(A, 100, rare)
    assert all(((gate >= 0) & (gate <= 1)).all() for gate in (gates.g1, gates.g2))
    assert (gates.g2 == 1).all() or rare.all()


def test_gates_by_hand():
    """g1 = a/100; the mean of a over R = {2, 3, 4, 5} is 10/4 = 2.5, so g2 = 1, 1, 0.4, 0."""
    rare = rare_tokens(A, 100, alpha=0.1)
    gates = agg_gates(A, 100, rare)
    assert rare.tolist() == [False, False, True, True, True, True]
    assert_close(gates.g1[2:], torch.tensor([0.06, 0.03, 0.01, 0.0]))
    assert_close(gates.g2[2:], torch.tensor([1.0, 1.0, 0.4, 0.0]))
    assert agg_gates(A, 100, rare, which="g1").g2 is None
    assert agg_gates(A, 100, rare, which="g2").g1 is None


@pytest.mark.parametrize("fraction", [0.01, 0.25, 0.5, 0.99])
def test_a_fraction_of_the_tokens_that_occur(fraction):
    """Of several thresholds, that of the nearest size, in which tokens that occur are rare too;
    tokens that do not occur are rare, and excluded ones are not, whatever their number."""
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

COUNTS = torch.tensor([90, 60, 40, 25, 9, 4, 3, 1])  # sorted, as the paper's vocabulary is
RANK, MU1, MU2 = 4, 10.0, 4.0


def problem():
    h, w = (torch.randn(size, 3).double().requires_grad_() for size in (12, 8))
    return h, w, torch.randint(6, (12,))  # 6 and 7 are absent


def eq15(h, w, y, counts):
    """dL/dW by the three sums of Eq. 15 for rare words, and Eq. 5 for the others."""
    p = (h @ w.t()).softmax(1).detach()
    h = h.detach()
    in_group = torch.arange(len(w)) >= RANK
    gradient = torch.zeros_like(w)
    for r in range(len(w)):
        f1, f2 = min(counts[r].item() / MU1, 1), min(counts[r].item() / MU2, 1)
        for i in range(len(y)):
            pull = -(1 - p[i, r]) * h[i] if y[i] == r else 0
            push = p[i, r] * h[i] if y[i] != r else 0
            if not in_group[r] or r in y:
                gradient[r] += push + pull
            else:
                gradient[r] += (f2 if in_group[y[i]] else f1) * push
    return gradient


def algorithm1(h, w, y, counts, mu2):
    """Algorithm 1 of the appendix, its lines 1 to 18."""
    clipped = counts.clip(max=MU1)
    f1 = (clipped / MU1).double()
    f2 = (clipped / mu2).clip(max=1).double()
    word = torch.zeros(len(w), dtype=w.dtype)
    word[y] = 1
    word[:RANK] = 1
    word_rev = (1 - word) * f2
    word = (word + f1).clip(max=1)
    masked = word[:, None] * w + (1 - word)[:, None] * w.detach()
    masked_rev = word_rev[:, None] * w + (1 - word_rev)[:, None] * w.detach()
    z = -F.log_softmax(h @ masked.t(), 1)
    rare_targets = (y >= RANK).nonzero().squeeze(1)
    z_rare = -F.log_softmax(h.detach()[rare_targets] @ masked_rev.t(), 1)
    first = z.gather(1, y[:, None]).sum()
    return first, first + z_rare.gather(1, y[rare_targets][:, None]).sum()


def gates(y, counts=COUNTS, **changes):
    present = torch.zeros(len(counts), dtype=torch.bool)
    present[y] = True
    return agps_gates(
        counts, present, tokens_from_rank(counts, RANK), **({"mu1": MU1, "mu2": MU2} | changes)
    )


def test_equation_15():
    h, w, y = problem()
    out = gated_likelihood(h, w, y, gates=gates(y))
    plain = F.cross_entropy(h @ w.t(), y, reduction="sum")
    assert_close(out.loss, plain)
    into_h, into_w = torch.autograd.grad(out.loss, (h, w))
    assert_close(into_h, torch.autograd.grad(plain, h)[0])
    assert_close(into_w, eq15(h, w, y, COUNTS))


@pytest.mark.parametrize("mu2", [4.0, 25.0])
def test_algorithm_1(mu2):
    """Its value is L1, the likelihood: L2 only routes gradients."""
    h, w, y = problem()
    value, everything = algorithm1(h, w, y, COUNTS, mu2)
    out = gated_likelihood(h, w, y, gates=gates(y, variant="algorithm1", mu2=mu2))
    assert_close(out.loss, value)
    assert_close(torch.autograd.grad(out.loss, (h, w)), torch.autograd.grad(everything, (h, w)))


def test_rank_of_an_unsorted_vocabulary():
    counts = torch.tensor([0, 0, 7, 3, 5, 5, 1])  # 0 and 1 never a target, 2 the unknown word
    special = torch.tensor([1, 1, 1, 0, 0, 0, 0]).bool()
    assert tokens_from_rank(counts, 1, special).nonzero().flatten().tolist() == [3, 5, 6]
    assert tokens_from_rank(counts, 0, special).nonzero().flatten().tolist() == [3, 4, 5, 6]
    assert tokens_from_rank(counts, 5, special).sum() == 0


def test_the_batches_of_a_training():
    """Targets of the batch are not held back; padding is no target, nor are those of a dummy
    batch."""
    objective = AgpsObjective(
        8, rare_rank=RANK, mu1=MU1, mu2=MU2, excluded=torch.arange(8) == 7, counts=COUNTS
    )
    rare = objective.rare
    assert rare.nonzero().flatten().tolist() == [4, 5, 6]
    found = objective.gates(torch.tensor([[0, 5], [-100, 5]]))
    expected = gates(torch.tensor([0, 5]))
    assert found.g1[rare].equal(expected.g1[rare]) and found.g2[rare].equal(expected.g2[rare])
    assert found.g1[5] == 1 and (found.g1[[4, 6]] < 1).all()
    assert (objective.gates(None).g1[rare] < 1).all()


# Freezing


@pytest.mark.parametrize("parts", ["b", "c", "bc"])
def test_parts_of_equation_4(parts):
    h, w = torch.randn(20, 3).double(), torch.randn(7, 3).double().requires_grad_()
    y, rare = torch.randint(7, (20,)), torch.arange(7) >= 4
    p = (h @ w.t()).softmax(1).detach()
    expected = torch.zeros_like(w)
    for r in range(7):
        for i in range(20):
            if y[i] == r:
                expected[r] += (p[i, r] - 1) * h[i]  # (a)
            elif not rare[r] or ("c" if rare[y[i]] else "b") not in parts:
                expected[r] += p[i, r] * h[i]
    out = gated_likelihood(h, w, y, gates=freezing_gates(rare, parts))
    assert_close(torch.autograd.grad(out.loss, w)[0], expected)
