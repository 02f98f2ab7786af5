"""The z-loss inside the gated operation, against its definition written out in float64."""

import pytest
import torch

from agg_fairseq.functional import (
    Gates,
    Unlikelihood,
    gated_cross_entropy,
    naive_gated_cross_entropy,
    previous_tokens,
)

PAD = 1


def paper_loss(h, w, y, gamma, weights):
    """Position by position: −ω log p(y) + γ log²Z, with Z = Σ_k exp z[k]."""
    total = h.new_zeros(())
    for b in range(len(y)):
        for t in range(y.size(1)):
            if y[b, t] != PAD:
                z = h[b, t] @ w.t()
                log_z = z.exp().sum().log()
                total = total - weights[b, t] * (z[y[b, t]] - log_z) + gamma * log_z**2
    return total


def problem(batch=3, steps=6, v=9, d=4):
    generator = torch.Generator().manual_seed(0)
    h = torch.randn(batch, steps, d, dtype=torch.float64, generator=generator)
    w = torch.randn(v, d, dtype=torch.float64, generator=generator)
    y = torch.randint(2, v, (batch, steps), generator=generator)
    y[0, 4:] = PAD
    weights = torch.rand(y.shape, dtype=h.dtype, generator=generator)
    return h.requires_grad_(), w.requires_grad_(), y, weights


@pytest.mark.parametrize("chunk_elements", [1, 30, 2**20])
def test_equals_the_paper(chunk_elements):
    h, w, y, weights = problem()
    expected = paper_loss(h, w, y, 0.3, weights)
    arguments = {"position_weight": weights, "z_loss": 0.3, "ignore_index": PAD}
    out = gated_cross_entropy(h, w, y, chunk_elements=chunk_elements, **arguments)
    for found in (out.loss, out.terms.sum(), naive_gated_cross_entropy(h, w, y, **arguments)):
        torch.testing.assert_close(found, expected)
    log_z = (h @ w.t()).logsumexp(-1).detach()
    torch.testing.assert_close(out.z_loss, log_z.square() * (y != PAD))
    torch.testing.assert_close(torch.autograd.grad(out.loss, (h, w)), torch.autograd.grad(expected, (h, w)))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("alpha", [0.0, 0.7])
def test_with_gates_and_the_other_terms(alpha, smoothing):
    """The gates act on the gradient of the sum of all terms."""
    h, w, y, weights = problem()
    bias = torch.randn(len(w), dtype=w.dtype, requires_grad=True)
    arguments = {
        "bias": bias,
        "gates": Gates(torch.arange(len(w)) >= 5, *torch.rand(2, len(w), dtype=w.dtype)),
        "label_smoothing": smoothing,
        "position_weight": weights,
        "unlikelihood": Unlikelihood(alpha, previous_tokens(y, PAD)) if alpha else None,
        "z_loss": 0.2,
        "ignore_index": PAD,
    }
    naive = naive_gated_cross_entropy(h, w, y, **arguments)
    fast = gated_cross_entropy(h, w, y, chunk_elements=40, **arguments)
    torch.testing.assert_close(fast.loss, naive)
    torch.testing.assert_close(torch.autograd.grad(fast.loss, (h, w, bias)), torch.autograd.grad(naive, (h, w, bias)))


def test_large_logits():
    """log Z of about 8,000: the square stays exact, and the probability of the arg-max is not lost beside it."""
    h, w = torch.tensor([[1.0]], requires_grad=True), torch.tensor([[8000.0], [7998.0]], requires_grad=True)
    out = gated_cross_entropy(h, w, torch.tensor([0]), z_loss=1e-4)
    assert out.z_loss.item() == pytest.approx(8000.126928**2, rel=1e-6)
    truth = h.detach().double().requires_grad_(), w.detach().double().requires_grad_()
    expected = naive_gated_cross_entropy(*truth, torch.tensor([0]), z_loss=1e-4)
    for found, right in zip(torch.autograd.grad(out.loss, (h, w)), torch.autograd.grad(expected, truth), strict=True):
        torch.testing.assert_close(found.double(), right, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_range(value):
    h, w, y, _ = problem()
    with pytest.raises(ValueError, match="z_loss of at least 0"):
        gated_cross_entropy(h, w, y, z_loss=value, ignore_index=PAD)
