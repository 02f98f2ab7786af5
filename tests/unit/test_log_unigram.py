import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from agg_fairseq.functional import log_unigram
from agg_fairseq.modules import UnigramLinear
from tests.losses import summed_nll

COUNTS = torch.tensor([50, 30, 0, 15, 5, 0])


def test_log_unigram_of_many_tokens():
    large = log_unigram(torch.tensor([2**40, 0]))
    assert large.tolist() == pytest.approx([0, -40 * math.log(2)], abs=1e-6)


def build_layer(dtype=torch.float32, **options):
    weight = torch.randn(6, 3, dtype=dtype, generator=torch.Generator().manual_seed(0))
    return UnigramLinear(nn.Parameter(weight), COUNTS, **options)


def test_the_shift_has_the_gradient_of_the_bias():
    layer, features = build_layer(torch.float64), torch.randn(7, 3, dtype=torch.float64)
    target = torch.tensor([0, 0, 1, 3, 0, 4, 2])
    options = {"bias": layer.bias}
    summed_nll(features, layer.weight, target, **options).backward()
    residual = (features @ layer.weight.T + log_unigram(COUNTS)).softmax(1)
    residual[range(7), target] -= 1
    assert_close(layer.bias_shift.grad, residual.sum(0), check_dtype=False)


def test_half_precision_does_not_round_the_bias():
    layer = build_layer().half()
    assert torch.equal(layer.bias, log_unigram(COUNTS)) and layer.bias.dtype == torch.float32
    assert layer(torch.ones(1, 3).half()).dtype == torch.float16


def test_a_moving_average_of_states_keeps_the_counts():
    """fairseq's --store-ema multiplies every entry of the state in place; up to 0.2.0, the counts
    were integers."""
    layer, average = build_layer(), build_layer().state_dict()
    for _ in range(20):
        for name, value in layer.state_dict().items():
            average[name].mul_(0.99).add_(value, alpha=0.01)
    fresh = UnigramLinear(nn.Parameter(torch.zeros(6, 3)), torch.zeros(6, dtype=torch.int64))
    for state in (average, {**layer.state_dict(), "counts": COUNTS}):
        fresh.load_state_dict(state)
        assert torch.equal(fresh.counts, COUNTS) and fresh.counts.dtype == torch.int64


def test_counts_of_a_damaged_checkpoint():
    for counts in (COUNTS[:5], COUNTS - 1):
        with pytest.raises(ValueError, match="expected counts of 6 tokens"):
            build_layer().load_state_dict({**build_layer().state_dict(), "counts": counts})
