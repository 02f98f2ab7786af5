"""`gated_linear`, under any loss of the logits, against the literal equations in float64."""

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import grad
from torch.testing import assert_close

from agg_fairseq.functional import gated_linear
from agg_fairseq.functional.gated_linear import ReplacedLinear
from tests.unit.test_training_loss import problem


def test_any_loss_of_the_logits_and_positions_without_a_target():
    """The gradient of W is the gated one of the logits times H; two losses add up."""
    h, w, b, y, _, gates = problem()
    y[0, 0] = w.size(0)  # none either
    logits = gated_linear(h, w, b, y, gates)
    assert torch.equal(logits, F.linear(h, w, b))
    loss = logits.logsumexp(2).square().sum() + logits[1:].sin().sum()
    (z,) = grad(loss, logits, retain_graph=True)
    factors = gates.g1.repeat(3, 7, 1)
    for row, step in (y >= 0).logical_and(y < len(w)).nonzero().tolist():
        target = y[row, step]
        if gates.rare[target]:
            factors[row, step] = gates.g2
        factors[row, step, target] = 1
    gated = (factors * z).flatten(0, 1)
    expected = z @ w, gated.t() @ h.flatten(0, 1), gated.sum(0)
    assert_close(grad(loss, (h, w, b)), expected, rtol=1e-12, atol=1e-13)


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
    *inputs, y, _, gates = problem()
    found = []
    for dtype, is_autocast in (
        (torch.float32, False),
        (torch.float32, True),
        (torch.bfloat16, False),
    ):
        leaves = [one.detach().to(dtype).requires_grad_() for one in inputs]
        with torch.autocast("cpu", enabled=is_autocast):
            logits = gated_linear(*leaves, y, gates)
        assert logits.dtype == (torch.bfloat16 if is_autocast else dtype)
        gradients = grad(F.cross_entropy(logits.flatten(0, 1), y.flatten()), leaves)
        assert {one.dtype for one in gradients} == {dtype}
        found.append([one.float() for one in gradients])
    assert_close(found[1], found[0], rtol=0.05, atol=0.01)
    assert_close(found[2], found[0], rtol=0.1, atol=0.02)


def test_second_derivatives_are_an_error():
    h, w, _, y, _, gates = problem()
    with pytest.raises(RuntimeError, match="second derivatives"):
        grad(gated_linear(h, w, None, y, gates).square().sum(), w, create_graph=True)
