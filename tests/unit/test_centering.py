import pytest
import torch

from agg_fairseq.functional import center_rows_, mean_row_penalty


def test_no_probability_changes():
    h, w, bias = torch.randn(12, 4).double(), torch.randn(9, 4).double() + 1.5, torch.randn(9).double()
    centered = w.clone()
    center_rows_(centered)
    before, after = (h @ w.t() + bias).softmax(1), (h @ centered.t() + bias).softmax(1)
    assert (before - after).abs().max() < 1e-12
    assert centered.mean(0).abs().max() < 1e-15


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype):
    """The copies of an optimizer are centered, and the weights are what they round to; without copies, in float32."""
    w = torch.randn(400, 4) + 1.5
    weight, master = w.to(dtype), w.clone()
    center_rows_(weight, [master])
    torch.testing.assert_close(master, w - w.mean(0))
    assert torch.equal(weight, master.to(dtype))
    alone = w.to(dtype)
    center_rows_(alone)
    expected = w.to(dtype).double()
    torch.testing.assert_close(alone.double(), expected - expected.mean(0), rtol=torch.finfo(dtype).eps, atol=1e-6)


def test_the_penalty_and_its_gradient():
    """‖Σ_k w_k / V‖² and 2μ/V, row by row; a step along it moves all rows alike."""
    w = (torch.randn(9, 4).double() + 1.5).requires_grad_()
    mu, value = sum(w) / len(w), mean_row_penalty(w)
    torch.testing.assert_close(value, mu @ mu)
    torch.testing.assert_close(torch.autograd.grad(value, w)[0], (2 * mu / len(w)).expand_as(w))


def test_the_penalty_in_half_precision_is_summed_in_float32():
    w = torch.full((70_000, 2), 1.25, dtype=torch.float16, requires_grad=True)
    value = mean_row_penalty(w)
    assert value.dtype == torch.float32 and value.item() == pytest.approx(2 * 1.25**2)
    assert torch.autograd.grad(1e4 * value, w)[0].dtype == torch.float16
