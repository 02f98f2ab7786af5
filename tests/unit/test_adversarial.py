"""Adversarial training inside the gated operation, against its definition written out in float64."""

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


def paper_loss(h, w, y, epsilon, bias):
    """Position by position: −log p(y) with w_y + δ in place of w_y, for the worst δ of length ε‖w_y‖, held fixed."""
    total = h.new_zeros(())
    for i in range(len(y)):
        if y[i] == PAD:
            continue
        rows = [w[k] for k in range(len(w))]
        if w[y[i]] @ h[i] > 0:
            delta = -epsilon * w[y[i]].norm() * h[i] / h[i].norm()
            rows[y[i]] = w[y[i]] + delta.detach()
        total = total - (torch.stack(rows) @ h[i] + bias).log_softmax(0)[y[i]]
    return total


def problem(n=18, v=9, d=4):
    generator = torch.Generator().manual_seed(0)
    h = torch.randn(n, d, dtype=torch.float64, generator=generator)
    w = torch.randn(v, d, dtype=torch.float64, generator=generator)
    y = torch.randint(2, v, (n,), generator=generator)
    y[4:6] = PAD
    h[7] = 0
    bias = torch.randn(v, dtype=torch.float64, generator=generator)
    return h.requires_grad_(), w.requires_grad_(), y, bias.requires_grad_()


@pytest.mark.parametrize("chunk_elements", [1, 40, 2**20])
@pytest.mark.parametrize("epsilon", [0.005, 0.5])
def test_equals_the_paper(epsilon, chunk_elements):
    h, w, y, bias = problem()
    right = ((w[y] * h).sum(1) > 0)[y != PAD]
    assert 3 < right.sum() < len(right) - 3, "targets on both sides"
    expected = paper_loss(h, w, y, epsilon, bias)
    arguments = {"bias": bias, "adversarial": epsilon, "ignore_index": PAD}
    out = gated_cross_entropy(h, w, y, chunk_elements=chunk_elements, **arguments)
    for found in (out.loss, out.terms.sum(), out.adversarial.sum(), naive_gated_cross_entropy(h, w, y, **arguments)):
        torch.testing.assert_close(found, expected)
    found, right = (torch.autograd.grad(loss, (h, w, bias)) for loss in (out.loss, expected))
    torch.testing.assert_close(found, right)


def test_the_perturbation_is_the_worst_of_its_length():
    h, w, y, bias = (tensor.detach() for tensor in problem())
    generator = torch.Generator().manual_seed(1)
    worst = gated_cross_entropy(h, w, y, bias=bias, adversarial=0.3, ignore_index=PAD).adversarial
    for i in range(len(y)):
        if y[i] == PAD or w[y[i]] @ h[i] <= 0:
            continue
        for _ in range(20):
            delta = torch.randn(w.size(1), dtype=w.dtype, generator=generator)
            rows = w.clone()
            rows[y[i]] += 0.3 * w[y[i]].norm() * delta / delta.norm()
            assert -(rows @ h[i] + bias).log_softmax(0)[y[i]] <= worst[i] + 1e-12


def test_the_likelihood_and_the_prediction_are_those_of_the_model():
    h, w, y, bias = problem()
    plain = gated_cross_entropy(h, w, y, bias=bias, ignore_index=PAD, predict=True)
    out = gated_cross_entropy(h, w, y, bias=bias, adversarial=0.9, ignore_index=PAD, predict=True)
    torch.testing.assert_close(out.nll, plain.nll)
    assert torch.equal(out.prediction, plain.prediction)
    assert (out.adversarial >= out.nll).all() and (out.adversarial > out.nll + 0.1).any()


def test_certain_targets_in_float32():
    """P' of the target rounds to 1, and a margin beyond the range of exp: the likelihood stays finite and exact."""
    h = torch.tensor([[40.0, 0.0], [200.0, 0.0]])
    w = torch.tensor([[5.0, 0.0], [0.0, 5.0], [-5.0, 0.0]])
    out = gated_cross_entropy(h, w, torch.tensor([0, 0]), adversarial=0.5)
    truth = gated_cross_entropy(h.double(), w.double(), torch.tensor([0, 0]))
    torch.testing.assert_close(out.nll.double(), truth.nll, atol=1e-4, rtol=0)
    assert out.loss.isfinite()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_with_gates_and_the_other_terms(smoothing):
    """All terms are those of the lowered logits, and the gates act on the gradient of their sum."""
    h, w, y, bias = problem()
    h, y = h.view(3, 6, -1), y.view(3, 6)
    arguments = {
        "bias": bias,
        "gates": Gates(torch.arange(len(w)) >= 5, *torch.rand(2, len(w), dtype=w.dtype)),
        "label_smoothing": smoothing,
        "position_weight": torch.rand(y.shape, dtype=w.dtype),
        "unlikelihood": Unlikelihood(0.7, previous_tokens(y, PAD)),
        "z_loss": 0.2,
        "adversarial": 0.4,
        "ignore_index": PAD,
    }
    naive = naive_gated_cross_entropy(h, w, y, **arguments)
    fast = gated_cross_entropy(h, w, y, chunk_elements=40, **arguments)
    torch.testing.assert_close(fast.loss, naive)
    found, right = (torch.autograd.grad(loss, (h, w, bias)) for loss in (fast.loss, naive))
    torch.testing.assert_close(found, right)


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_range(value):
    h, w, y, _ = problem()
    with pytest.raises(ValueError, match="adversarial of at least 0"):
        gated_cross_entropy(h, w, y, adversarial=value, ignore_index=PAD)
