"""Unlikelihood inside the gated operation, against the objective of Welleck et al. written out in float64."""

import pytest
import torch
import torch.nn.functional as F

from agg_fairseq.functional import (
    Gates,
    Unlikelihood,
    gated_cross_entropy,
    given_tokens,
    naive_gated_cross_entropy,
    previous_tokens,
    repeated_ngrams,
)

PAD = 1


def paper_loss(h, w, y, alpha, weights=None):
    """Position by position: −ω log p(y_t) − α Σ_{c ∈ {y_1…y_{t−1}} ∖ {y_t}} log(1 − p(c))."""
    total = h.new_zeros(())
    for b in range(len(y)):
        for t in range(y.size(1)):
            if y[b, t] == PAD:
                continue
            p = (h[b, t] @ w.t()).softmax(0)
            total = total - (1 if weights is None else weights[b, t]) * p[y[b, t]].log()
            for c in set(y[b, :t].tolist()) - {y[b, t].item(), PAD}:
                total = total - alpha * (1 - p[c]).log()
    return total


def problem(batch=3, steps=7, v=9, d=4, seed=0, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    h = torch.randn(batch, steps, d, dtype=torch.float64, generator=generator) * scale
    w = torch.randn(v, d, dtype=torch.float64, generator=generator)
    y = torch.randint(2, v, (batch, steps), generator=generator)
    y[0, 4:] = PAD
    y[1, :2] = PAD  # padding on the left, as translation sources have it
    return h.requires_grad_(), w.requires_grad_(), y


@pytest.mark.parametrize("chunk_elements", [1, 30, 2**20])
@pytest.mark.parametrize("alpha", [0.0, 0.5, 2.0])
def test_equals_the_paper(alpha, chunk_elements):
    h, w, y = problem()
    weights = torch.rand(y.shape, dtype=h.dtype, generator=torch.Generator().manual_seed(2))
    expected = paper_loss(h, w, y, alpha, weights)
    out = gated_cross_entropy(
        h,
        w,
        y,
        position_weight=weights,
        unlikelihood=Unlikelihood(alpha, previous_tokens(y, PAD)),
        ignore_index=PAD,
        chunk_elements=chunk_elements,
    )
    torch.testing.assert_close(out.loss, expected)
    torch.testing.assert_close(out.terms.sum(), expected)
    torch.testing.assert_close(out.unlikelihood.sum(), paper_loss(h, w, y, 1.0) - paper_loss(h, w, y, 0.0))
    torch.testing.assert_close(torch.autograd.grad(out.loss, (h, w)), torch.autograd.grad(expected, (h, w)))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("rare_gate", ["g2", "appearances"])
def test_gates_apply_to_the_whole_gradient(rare_gate, smoothing):
    """UL + AGG: the gradient of the penalty passes the same gates into rare rows as that of the likelihood."""
    h, w, y = problem()
    bias = torch.randn(len(w), dtype=w.dtype, requires_grad=True)
    rare = torch.arange(len(w)) >= 5
    appearances = torch.tensor([9, 9, 9, 9, 9, 3, 1, 0, 2])
    common = torch.rand(len(w), dtype=w.dtype)
    gates = {
        "g2": Gates(rare, common, torch.rand(len(w), dtype=w.dtype)),
        "appearances": Gates(rare, common, appearances=appearances),
    }[rare_gate]
    arguments = {
        "bias": bias,
        "gates": gates,
        "label_smoothing": smoothing,
        "unlikelihood": Unlikelihood(0.7, previous_tokens(y, PAD)),
        "ignore_index": PAD,
    }
    naive = naive_gated_cross_entropy(h, w, y, **arguments)
    fast = gated_cross_entropy(h, w, y, chunk_elements=40, **arguments)
    torch.testing.assert_close(fast.loss, naive)
    torch.testing.assert_close(torch.autograd.grad(fast.loss, (h, w, bias)), torch.autograd.grad(naive, (h, w, bias)))


def test_candidates_do_not_leak_between_sequences():
    """The loss of a batch is the sum over its sentences, each without its padding and neighbors."""
    h, w, y = problem()

    def loss(h, y):
        return gated_cross_entropy(
            h, w, y, unlikelihood=Unlikelihood(1.0, previous_tokens(y, PAD)), ignore_index=PAD
        ).loss

    alone = [loss(h[b : b + 1, y[b] != PAD], y[b : b + 1, y[b] != PAD]) for b in range(len(y))]
    torch.testing.assert_close(loss(h, y), sum(alone))


def test_candidates_by_hand():
    y = torch.tensor([[5, 3, 5, PAD], [PAD, PAD, PAD, PAD]])
    tokens, is_candidate = previous_tokens(y, PAD).at(torch.arange(8))
    found = [set(row[kept].tolist()) for row, kept in zip(tokens, is_candidate, strict=True)]
    assert found[:3] == [set(), {5}, {3, 5}]
    assert found[4:] == [set()] * 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_certain_candidate_gives_a_bounded_gradient(dtype):
    """P(c) = 1 − 1e-9: in float32 `1 − P` would round to zero, and the gradient to infinity."""
    logits = torch.tensor([[0.0, 0.0, 21.0, -1.0]], dtype=torch.float64)
    h = torch.eye(1, dtype=torch.float64)
    candidates = given_tokens(torch.tensor([[2]]), torch.tensor([[True]]))
    target = torch.tensor([[0]])
    oracle = logits.clone().t().requires_grad_()
    others = torch.logsumexp(oracle.flatten()[[0, 1, 3]], 0) - torch.logsumexp(oracle.flatten(), 0)
    (expected,) = torch.autograd.grad(-others - F.log_softmax(oracle.flatten(), 0)[0], oracle)
    w = logits.t().to(dtype).requires_grad_()
    out = gated_cross_entropy(h[None].to(dtype), w, target, unlikelihood=Unlikelihood(1.0, candidates))
    torch.testing.assert_close(out.unlikelihood.double().item(), -others.item(), rtol=1e-6, atol=0)
    (found,) = torch.autograd.grad(out.loss, w)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("gap", [30.0, 89.0, 200.0])
@pytest.mark.parametrize("alpha", [1.0, 10.0])
def test_a_saturated_candidate_stays_finite(gap, alpha):
    """The others' probabilities underflow to zero in float32; the candidate is still pushed down by α."""
    w = torch.tensor([[0.0], [0.0], [gap]], requires_grad=True)
    h = torch.ones(1, 1, 1, requires_grad=True)
    candidates = given_tokens(torch.tensor([[2]]), torch.tensor([[True]]))
    out = gated_cross_entropy(h, w, torch.tensor([[0]]), unlikelihood=Unlikelihood(alpha, candidates))
    into_h, into_w = torch.autograd.grad(out.loss, (h, w))
    assert out.loss.isfinite() and into_h.isfinite().all()
    assert into_w[2].item() == pytest.approx(1 + alpha, rel=1e-5)


@pytest.mark.parametrize("at", ["features", "weight"])
def test_gradient_is_the_derivative_of_the_value(at):
    """Central differences: `gradcheck` runs backward twice, which the operation does not allow."""
    h, w, y = problem(batch=2, steps=4, v=6, d=3)
    y = y.clamp(max=5)
    unlikelihood = Unlikelihood(0.8, previous_tokens(y, PAD))
    point = h if at == "features" else w

    def value():
        return gated_cross_entropy(h, w, y, unlikelihood=unlikelihood, ignore_index=PAD).loss

    (gradient,) = torch.autograd.grad(value(), point)
    flat, numeric = point.detach().view(-1), torch.zeros_like(gradient).view(-1)
    for index in range(flat.numel()):
        kept, step = flat[index].item(), 1e-6
        for sign in (1, -1):
            flat[index] = kept + sign * step
            numeric[index] += sign * value().item() / (2 * step)
        flat[index] = kept
    torch.testing.assert_close(gradient.view(-1), numeric, rtol=1e-6, atol=1e-7)


def test_target_as_candidate():
    """The sequence level: the target itself is penalized, and the likelihood has weight 0."""
    h, w, y = problem()
    y = y.clamp(min=2)
    punished = torch.rand(y.shape, generator=torch.Generator().manual_seed(1)) < 0.5
    expected = h.new_zeros(())
    for b, t in punished.nonzero().tolist():
        expected = expected - (1 - (h[b, t] @ w.t()).softmax(0)[y[b, t]]).log()
    unlikelihood = Unlikelihood(1.0, given_tokens(y, punished), spare_target=False)
    out = gated_cross_entropy(
        h, w, y, position_weight=torch.zeros(y.shape), unlikelihood=unlikelihood, label_smoothing=0.1
    )
    torch.testing.assert_close(out.loss, expected)
    torch.testing.assert_close(torch.autograd.grad(out.loss, (h, w)), torch.autograd.grad(expected, (h, w)))


@pytest.mark.parametrize(
    ("line", "n", "expected"),
    [
        ([1, 2, 3, 1, 2, 3], 3, [0, 0, 0, 1, 1, 1]),  # the last n-gram counts
        ([1, 1, 1, 1], 2, [0, 1, 1, 1]),
        ([1, 2, 3, 4], 2, [0, 0, 0, 0]),
        ([5, 6, 5], 1, [0, 0, 1]),
        ([7], 4, [0]),
    ],
)
def test_repeated_ngrams(line, n, expected):
    assert repeated_ngrams(torch.tensor([line]), n).int().tolist() == [expected]


def test_memory_grows_with_the_distinct_candidates():
    """A thousand steps over three tokens need three columns."""
    candidates = previous_tokens(torch.randint(2, 5, (4, 1000), generator=torch.Generator().manual_seed(0)), PAD)
    assert candidates.tokens.shape == (4, 3)


def test_prediction_is_the_arg_max():
    h, w, y = problem()
    out = gated_cross_entropy(h, w, y, ignore_index=PAD, predict=True, chunk_elements=20)
    kept = y != PAD
    assert torch.equal(out.prediction[kept], (h @ w.t()).argmax(-1)[kept])
    assert not out.prediction[~kept].any()
