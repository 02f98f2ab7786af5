"""Output embedding centering: what it leaves as it is, and the penalty against its definition."""

import pytest
import torch

from agg_fairseq.functional import center_rows_, mean_row_penalty, previous_tokens
from agg_fairseq.functional import gated_cross_entropy as loss_of
from agg_fairseq.functional.unlikelihood import Unlikelihood
from agg_fairseq.metrics import isotropy

PAD = 1


def problem(n=12, v=9, d=4, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    h = torch.randn(n, d, dtype=dtype, generator=generator)
    w = torch.randn(v, d, dtype=dtype, generator=generator) + 1.5
    y = torch.randint(2, v, (n,), generator=generator)
    bias = torch.randn(v, dtype=dtype, generator=generator)
    return h, w, y, bias


@pytest.mark.parametrize("with_bias", [False, True])
def test_no_probability_changes(with_bias):
    h, w, _, bias = problem()
    bias = bias if with_bias else torch.zeros_like(bias)
    centered = w.clone()
    center_rows_(centered)
    before, after = (h @ w.t() + bias).softmax(1), (h @ centered.t() + bias).softmax(1)
    assert (before - after).abs().max() < 1e-12
    assert centered.mean(0).abs().max() < 1e-15
    assert abs(isotropy(w) - isotropy(centered)) > 0.1, "though I(W) is another"
    kept = centered.clone()
    kept[PAD] = w[PAD]
    assert ((h @ kept.t() + bias).softmax(1) - before).abs().max() > 1e-3, "a row that is left out changes all"


def test_what_else_does_not_change():
    """Label smoothing, unlikelihood and dL/dH do not; the z-loss does, by the square of log Z − h·μ."""
    h, w, y, bias = problem()
    centered = w.clone()
    center_rows_(centered)
    y = y.view(3, 4)
    options = {"bias": bias, "label_smoothing": 0.1, "unlikelihood": Unlikelihood(0.5, previous_tokens(y, PAD))}

    def found(weight, **more):
        features = h.view(3, 4, -1).clone().requires_grad_()
        out = loss_of(features, weight, y, **options, **more)
        return out, torch.autograd.grad(out.loss, features)[0]

    (before, gradient), (after, gradient_after) = found(w), found(centered)
    torch.testing.assert_close(before.loss, after.loss, rtol=1e-12, atol=0)
    torch.testing.assert_close(gradient, gradient_after, rtol=1e-10, atol=1e-12)
    log_z = (h @ w.t() + bias).logsumexp(1)
    moved = found(centered, z_loss=1.0)[0].z_loss.flatten()
    torch.testing.assert_close(moved, (log_z - h @ w.mean(0)).square())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype):
    """The copies of an optimizer are centered, and the weights are what they round to; without copies, in float32."""
    _, w, *_ = problem(v=400, dtype=torch.float32)
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
    _, w, *_ = problem()
    w.requires_grad_()
    mu = sum(w) / len(w)
    value = mean_row_penalty(w)
    torch.testing.assert_close(value, mu @ mu)
    gradient = torch.autograd.grad(value, w)[0]
    torch.testing.assert_close(gradient, (2 * mu / len(w)).expand_as(w))


def test_the_penalty_in_half_precision_is_summed_in_float32():
    w = torch.full((70_000, 2), 1.25, dtype=torch.float16, requires_grad=True)
    value = mean_row_penalty(w)
    assert value.dtype == torch.float32 and value.item() == pytest.approx(2 * 1.25**2)
    assert torch.autograd.grad(1e4 * value, w)[0].dtype == torch.float16
    with pytest.raises(ValueError, match=r"\(V, D\)"):
        mean_row_penalty(torch.ones(3))
