import pytest
import torch
import torch.nn.functional as F

from agg_fairseq.functional import gated_cross_entropy, given_tokens, repeated_ngrams

PAD = 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("gap", [21.0, 60.0, 89.0, 200.0])
@pytest.mark.parametrize("alpha", [1.0, 10.0])
def test_a_certain_candidate_gives_a_bounded_gradient(dtype, gap, alpha):
    """In float32, `1 − P` rounds to zero, and so do the probabilities of the others at the larger gaps."""
    logits = torch.tensor([0.0, 0.0, gap, -1.0], dtype=torch.float64, requires_grad=True)
    penalty = logits.logsumexp(0) - logits[[0, 1, 3]].logsumexp(0)
    (expected,) = torch.autograd.grad(alpha * penalty - F.log_softmax(logits, 0)[0], logits)
    h = torch.ones(1, 1, 1, dtype=dtype, requires_grad=True)
    w = logits.detach().to(dtype)[:, None].requires_grad_()
    candidates = given_tokens(torch.tensor([[2]]), torch.tensor([[True]]))
    out = gated_cross_entropy(h, w, torch.tensor([[0]]), candidates=candidates, ul_alpha=alpha)
    assert out.ul_loss.item() == pytest.approx(penalty.item(), rel=1e-6)
    into_h, into_w = torch.autograd.grad(out.loss, (h, w))
    torch.testing.assert_close(into_w[:, 0].double(), expected, rtol=1e-5, atol=1e-6)
    assert into_h.isfinite()


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
