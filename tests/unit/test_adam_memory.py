"""The rule for β₂ against a simulated Adam, which shares nothing with it but the assumptions."""

import math

import pytest
import torch

from agg_fairseq.functional import least_beta2


def simulated(updates_per_appearance, beta2, push, *, tokens=500, updates=8_000):
    """Mean step per unit of push over mean step per unit of pull, of many tokens, after v has settled."""
    generator = torch.Generator().manual_seed(1)
    v = torch.full((tokens,), 1 / updates_per_appearance, dtype=torch.float64)
    pushes, pulls, appearances = 0.0, 0.0, 0
    for update in range(updates):
        appears = torch.rand(tokens, generator=generator) < 1 / updates_per_appearance
        gradient = torch.where(appears, 1.0, push).double()
        v = beta2 * v + (1 - beta2) * gradient**2
        if update > updates // 4:
            step = v.rsqrt()
            pulls += step[appears].sum().item()
            pushes += step.sum().item()
            appearances += int(appears.sum())
    return (pushes / (tokens * (updates - updates // 4 - 1))) / (pulls / appearances)


@pytest.mark.parametrize(("n", "beta2"), [(20, 0.98), (20, 0.998), (50, 0.98), (100, 0.999)])
def test_ratio_of_pushes_to_pulls_is_that_of_a_simulated_adam(n, beta2):
    assert 1 / (1 - n * (1 - beta2) / 2) == pytest.approx(simulated(n, beta2, push=1e-9), rel=0.03)


@pytest.mark.parametrize("n", [5, 30, 200])
def test_least_beta2_keeps_the_simulated_ratio_below_its_bound_and_a_smaller_beta2_does_not(n):
    beta2 = least_beta2(n)
    assert simulated(n, beta2, push=1e-9) < 1.13
    assert simulated(n, 1 - 2 * (1 - beta2), push=1e-9) > 1.18


def test_where_x_is_above_1_the_pushes_themselves_bound_the_ratio():
    small, large = simulated(200, 0.98, push=1e-6), simulated(200, 0.98, push=1e-2)
    assert 2 < large < small < math.inf


def test_ends_of_the_range():
    assert (least_beta2(math.inf), least_beta2(0.1)) == (1.0, 0.0)
