"""What an output layer computes, in every precision."""

import itertools

import pytest
import torch
from torch import nn

from agg_fairseq.modules import UnigramLinear
from agg_fairseq.modules.linear_logits import LinearLogits, NotLinear, linear_logits

LAYERS = {
    "plain": (lambda z: z, (1.0, None)),
    "scale": (lambda z: -1.3 * z, (-1.3, None)),
    "soft cap": (lambda z: 30 * torch.tanh(z / 30), (1.0, 30.0)),
    "both": (lambda z: 2 * torch.tanh(z / 5), (0.4, 2.0)),
    "bound": (lambda z: z.clamp(-30, 30), None),
    "mask": (lambda z: z.index_fill(-1, torch.tensor([3]), -1e4), None),
    "normalized": (lambda z: z / z.norm(dim=-1, keepdim=True), None),
    "centered": (lambda z: z - z.mean(), None),
    "zero": (lambda z: z * 0, None),
    "fewer": (lambda z: z[..., :-1], None),
}


class Layer(nn.Linear):
    def __init__(self, after, bias):
        super().__init__(24, 500, bias)
        self.after, self.calls = after, []

    def forward(self, features):
        self.calls.append(features.shape)
        return self.after(super().forward(features))


PRECISIONS = itertools.cycle([
    (torch.float64, None), (torch.float32, None), (torch.bfloat16, None),
    (torch.float16, None), (torch.float32, torch.bfloat16), (torch.float32, torch.float16),
    (torch.float64, None),
])  # fmt: skip
CASES = [
    (kind, bias, size, *next(PRECISIONS))
    for bias, size in ((False, 1.0), (True, 1.0), (False, 1e-4))
    for kind in LAYERS
]
"""The seven precisions in turn: each layer with three of them."""


@pytest.mark.parametrize(("kind", "bias", "size", "dtype", "mixed"), CASES)
def test_in_every_precision(kind, bias, size, dtype, mixed):
    """s and c within the rounding of the dtypes; the layer is asked once in training and once in
    validation, and has its W as before."""
    torch.manual_seed(1)
    after, expected = LAYERS[kind]
    layer = Layer(after, bias).to(dtype)
    layer.weight.data.mul_(size)
    before, features = layer.weight.detach().clone(), torch.zeros(1, 24, dtype=dtype)
    with torch.no_grad(), torch.autocast("cpu", mixed, enabled=mixed is not None):
        for number in range(4):
            layer.train(number % 2 == 0)
            if expected is None:
                with pytest.raises(NotLinear, match=r"is not s \(H Wᵀ \+ b\)"):
                    linear_logits(layer, layer, features, layer)
                continue
            found = linear_logits(layer, layer, features, layer)
            half = dtype.itemsize == 2 or mixed is not None
            scale, softcap = (
                value and pytest.approx(value, rel=3e-3 if half else 1e-5) for value in expected
            )
            assert found == LinearLogits(layer.weight, layer.bias, scale, softcap)
            assert len(layer.calls) == min(number + 1, 2)
    assert layer.weight.equal(before) and layer.weight.grad is None
    if kind == "plain":
        assert found.scale == 1


def test_a_bias_that_is_computed_is_known_also_without_gradients():
    layer = UnigramLinear(nn.Parameter(torch.randn(5, 3)), torch.tensor([4, 3, 2, 1, 0]))
    with torch.no_grad():
        found = linear_logits(layer, layer, torch.zeros(1, 3), layer)
    assert torch.equal(found.bias, layer.bias) and (found.scale, found.softcap) == (1.0, None)
