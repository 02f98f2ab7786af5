import pytest
import torch
import torch.nn.functional as F

from agg_fairseq.functional import Unlikelihood, gated_cross_entropy, given_tokens, previous_tokens, repeated_ngrams

PAD = 1


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


def test_target_as_candidate():
    """The sequence level: the target itself is penalized, and the likelihood has weight 0."""
    h, w = torch.randn(3, 7, 4).double().requires_grad_(), torch.randn(9, 4).double().requires_grad_()
    y, punished = torch.randint(9, (3, 7)), torch.rand(3, 7) < 0.5
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
