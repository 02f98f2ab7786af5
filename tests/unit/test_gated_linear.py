"""`gated_linear`, under any loss of the logits, against the literal equations in float64."""

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import grad
from torch.testing import assert_close

from agg_fairseq.functional import Gates, gated_linear, naive_gated_cross_entropy
from agg_fairseq.functional.gated_linear import ReplacedLinear
from tests.unit.test_training_loss import IGNORED, problem


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("names", [("g1", "g2"), ("g1",), ("g2",)])
@pytest.mark.parametrize(
    "options", [{}, {"label_smoothing": 0.1}, {"softcap": 1.5}, {"scale": -3.0}]
)
def test_equals_the_naive_implementation(with_bias, names, options):
    h, w, b, y, _, gates = problem()
    gates = Gates(gates.rare, **{name: getattr(gates, name) for name in names})
    inputs = (h, w, b) if with_bias else (h, w)
    bias = b if with_bias else None
    logits = gated_linear(h, w, bias, y, gates)
    assert torch.equal(logits, F.linear(h, w, bias))
    z, cap = logits * options.get("scale", 1.0), options.get("softcap")
    z = cap * torch.tanh(z / cap) if cap else z
    smoothing = options.get("label_smoothing", 0.0)
    loss = F.cross_entropy(z.flatten(0, 1), y.flatten(), reduction="sum", label_smoothing=smoothing)
    expected = naive_gated_cross_entropy(h, w, y, bias=bias, gates=gates, **options)
    assert_close(loss, expected)
    assert_close(grad(loss, inputs), grad(expected, inputs), rtol=1e-12, atol=1e-13)


def test_any_loss_of_the_logits_and_positions_without_a_target():
    """The gradient of W is the gated one of the logits times H; two losses add up."""
    h, w, b, y, _, gates = problem()
    y[0, 0] = w.size(0)  # none either
    logits = gated_linear(h, w, b, y, gates)
    loss = logits.logsumexp(2).square().sum() + logits[1:].sin().sum()
    z, h_flat, y_flat = (
        grad(loss, logits, retain_graph=True)[0].flatten(0, 1),
        h.flatten(0, 1),
        y.flatten(),
    )
    factors = torch.stack(
        [gates.g2 if 0 <= k < len(w) and gates.rare[k] else gates.g1 for k in y_flat.tolist()]
    )
    for position, k in enumerate(y_flat.tolist()):
        if 0 <= k < len(w):
            factors[position, k] = 1
    grad_h, grad_w, grad_b = grad(loss, (h, w, b))
    assert_close(
        [grad_h.flatten(0, 1), grad_w, grad_b],
        [z @ w, (factors * z).t() @ h_flat, (factors * z).sum(0)],
    )


def test_replaces_a_layer_however_it_is_called():
    layer, other, x = torch.nn.Linear(2, 3), torch.nn.Linear(2, 3), torch.ones(1, 2)
    calls = [
        lambda one: F.linear(x, one.weight, one.bias),
        lambda one: F.linear(x, weight=one.weight),
        lambda one: F.linear(weight=one.weight, bias=one.bias, input=x),
    ]
    with ReplacedLinear(layer, lambda input, weight, bias=None: input + 5):
        for call in calls:
            assert call(layer).tolist() == [[6.0, 6.0]] and call(other).shape == (1, 3)


def test_in_half_precision_gradients_have_the_dtypes_of_a_linear_layer():
    h, w, b, y, _, gates = problem()
    h, w, b = (one.detach().float().requires_grad_() for one in (h, w, b))
    truth = grad(
        F.cross_entropy(gated_linear(h, w, b, y, gates).flatten(0, 1), y.flatten()), (h, w, b)
    )
    with torch.autocast("cpu"):
        logits = gated_linear(h, w, b, y, gates)
    assert logits.dtype == torch.bfloat16
    found = grad(F.cross_entropy(logits.flatten(0, 1), y.flatten()), (h, w, b))
    assert_close(found, truth, rtol=0.05, atol=0.01)
    half = [one.detach().bfloat16().requires_grad_() for one in (h, w, b)]
    logits = gated_linear(*half, y, gates)
    found = grad(F.cross_entropy(logits.flatten(0, 1), y.flatten()), half)
    assert {one.dtype for one in found} == {torch.bfloat16}
    assert_close([one.float() for one in found], list(truth), rtol=0.1, atol=0.02)


def test_refusals():
    h, w, b, y, _, gates = problem()
    assert torch.equal(gated_linear(h, w, None, y, None), F.linear(h, w))
    with pytest.raises(ValueError, match="target of shape"):
        gated_linear(h, w, None, y.flatten(), gates)
    with pytest.raises(ValueError, match=r"gates \(11,\), got \(10,\)"):
        gated_linear(h, w, None, y, Gates(gates.rare[1:], gates.g1[1:]))
    with pytest.raises(ValueError, match="whole target of shape .* and torch.float32"):
        gated_linear(h, w, None, y.float(), gates)
    with pytest.raises(ValueError, match="on meta, where the weight is on cpu"):
        gated_linear(h, w, None, y, Gates(gates.rare.to("meta")))
    with pytest.raises(ValueError, match=r"g1 and rare of one shape, got \(11, 1\)"):
        Gates(gates.rare, gates.g1[:, None])
    with pytest.raises(ValueError, match="rare of torch.bool, got torch.int64"):
        Gates(gates.rare.long(), gates.g1)
    with pytest.raises(ValueError, match="g1 of at least 0, got -1"):
        Gates(gates.rare | True, -torch.ones(11))
    with pytest.raises(RuntimeError, match="second derivatives"):
        grad(
            gated_linear(h, w, None, y.where(y != IGNORED, 0), gates).square().sum(),
            w,
            create_graph=True,
        )
