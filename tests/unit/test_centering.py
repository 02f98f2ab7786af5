import pytest
import torch

from agg_fairseq.functional import center_rows_, mean_row_penalty
from agg_fairseq.metrics import isotropy

PAD = 1


def problem(n=12, v=9, d=4, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    h = torch.randn(n, d, dtype=dtype, generator=generator)
    w = torch.randn(v, d, dtype=dtype, generator=generator) + 1.5
    bias = torch.randn(v, dtype=dtype, generator=generator)
    return h, w, bias


def test_no_probability_changes():
    h, w, bias = problem()
    centered = w.clone()
    center_rows_(centered)
    before, after = (h @ w.t() + bias).softmax(1), (h @ centered.t() + bias).softmax(1)
    assert (before - after).abs().max() < 1e-12
    assert centered.mean(0).abs().max() < 1e-15
    assert abs(isotropy(w) - isotropy(centered)) > 0.1, "though I(W) is another"
    kept = centered.clone()
    kept[PAD] = w[PAD]
    assert ((h @ kept.t() + bias).softmax(1) - before).abs().max() > 1e-3, "a row that is left out changes all"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype):
    """The copies of an optimizer are centered, and the weights are what they round to; without copies, in float32."""
    _, w, _ = problem(v=400, dtype=torch.float32)
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
    _, w, _ = problem()
    w.requires_grad_()
    mu, value = sum(w) / len(w), mean_row_penalty(w)
    torch.testing.assert_close(value, mu @ mu)
    torch.testing.assert_close(torch.autograd.grad(value, w)[0], (2 * mu / len(w)).expand_as(w))


def test_the_penalty_in_half_precision_is_summed_in_float32():
    w = torch.full((70_000, 2), 1.25, dtype=torch.float16, requires_grad=True)
    value = mean_row_penalty(w)
    assert value.dtype == torch.float32 and value.item() == pytest.approx(2 * 1.25**2)
    assert torch.autograd.grad(1e4 * value, w)[0].dtype == torch.float16
