"""The measure of `scripts/ours/pushes_and_pulls.py`."""

import pytest
import torch

from agg_fairseq.checkpoints import Checkpoint
from agg_fairseq.errors import UserError
from scripts.ours.pushes_and_pulls import movements, push_and_pull, ratio, ratios


def test_parts_sum_to_the_gradient():
    h = torch.randn(40, 6).double()
    w = torch.randn(30, 6).double().requires_grad_()
    b = torch.randn(30).double()
    y = torch.randint(20, (40,))
    torch.nn.functional.cross_entropy(h @ w.T + b, y, reduction="sum").backward()
    push, pull = push_and_pull(h, w.detach(), y, b)
    torch.testing.assert_close(push + pull, w.grad)
    assert pull.any(1).nonzero().squeeze(1).tolist() == sorted(set(y.tolist()))
    probabilities = (h @ w.T + b).softmax(1)
    expected = sum(probabilities[i, 3] * h[i] for i in range(40) if y[i] != 3)
    torch.testing.assert_close(push[3], expected)


def test_ratio_of_a_simulated_adam_is_that_of_the_formula():
    """Features of one direction; a token that appears once in 40 updates, and is predicted with a
    constant 1e-6."""
    generator = torch.Generator().manual_seed(1)
    v = torch.full((300, 1), 1 / 40)
    sums = torch.zeros(4, 300).double()
    for update in range(4000):
        pull = -(torch.rand(300, 1, generator=generator) < 1 / 40).float()
        push = torch.full((300, 1), 1e-6)
        v = 0.98 * v + 0.02 * (push + pull) ** 2
        if update > 1000:
            sums += movements(push, pull, v.rsqrt(), torch.ones(1))
    assert ratio(sums) == pytest.approx(1 / (1 - 40 * 0.02 / 2), rel=0.03)


def test_equal_second_moments_are_gradient_descent(lm_runs, lm_data):
    checkpoint = Checkpoint(lm_runs / "mle" / "checkpoint_last.pt")
    trained = ratios(checkpoint, lm_data)
    assert trained["rare"][0] > trained["frequent"][0] > 0
    assert trained["rare"][1] == pytest.approx(trained["rare"][0] * (1 - 0.999) / 2)
    for state in checkpoint.state["last_optimizer_state"]["state"].values():
        state["exp_avg_sq"].fill_(1e12)  # against which no gradient counts
    for group, values in ratios(checkpoint, lm_data).items():
        assert 0 < trained[group][2] < 100 and values[2] == pytest.approx(1, rel=1e-3)
    checkpoint.state["cfg"]["criterion"]["ul_alpha"] = 0.5
    with pytest.raises(UserError, match="found a training with mle, adam, ul_alpha"):
        ratios(checkpoint, lm_data)
