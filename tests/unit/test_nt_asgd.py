import copy
import random

import pytest
import torch

from agg_fairseq.awd_lstm import NTASGD


def run(optimizer, parameters, gradients):
    for step in gradients:
        for parameter, gradient in zip(parameters, step, strict=True):
            parameter.grad = gradient.clone()
        optimizer.step()


@pytest.mark.parametrize("before", [0, 7])
def test_equals_asgd_of_torch_after_the_trigger(before):
    """To the precision of the float32 in which torch keeps the weight of an iterate in the average."""
    shapes = [(4, 3), (5,)]
    parameters = [torch.nn.Parameter(torch.randn(shape, dtype=torch.float64)) for shape in shapes]
    gradients = [[torch.randn(shape, dtype=torch.float64) for shape in shapes] for _ in range(20)]
    copies = copy.deepcopy(parameters)
    ours = NTASGD(parameters, lr=0.25, weight_decay=0.01, patience=5 if before else 0)
    run(ours, parameters, gradients[:before])
    run(torch.optim.SGD(copies, lr=0.25, weight_decay=0.01), copies, gradients[:before])
    torch.testing.assert_close(parameters, copies, rtol=0, atol=1e-14)
    for number, loss in enumerate([1.0] * 6 + [2.0] if before else []):
        assert ours.observe(loss, number) == (number == 6)
    theirs = torch.optim.ASGD(copies, lr=0.25, weight_decay=0.01, t0=0, lambd=0.0)
    for step in gradients[before:]:
        run(ours, parameters, [step])
        run(theirs, copies, [step])
        torch.testing.assert_close(parameters, copies, rtol=0, atol=1e-13)
        averages = [theirs.state[copy]["ax"] for copy in copies]
        ours.swap()
        torch.testing.assert_close([p.detach() for p in parameters], averages, rtol=0, atol=1e-7)
        ours.swap()


def triggered(losses, n):
    """Algorithm 1, with t validations before each."""
    for t, v in enumerate(losses):
        if t > n and v > min(losses[l] for l in range(t - n)):  # noqa: E741 — the paper's name
            return t
    return None


@pytest.mark.parametrize("n", [1, 2, 5])
def test_averaging_begins_as_in_algorithm_1(n):
    for seed in range(50):
        generator = random.Random(seed)
        losses = [round(10 / (t + 1) + generator.random(), 1) for t in range(15)]
        optimizer = NTASGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0, patience=n)
        found = []
        for t, loss in enumerate(losses):
            found += [t] if optimizer.observe(loss, t) else []
            assert not optimizer.observe(0.0, t)  # a validation counts once
        expected = triggered(losses, n)
        assert found == ([] if expected is None else [expected])
        assert optimizer.averaging == (expected is not None)


def test_nt_asgd_refuses_a_step_of_the_average():
    optimizer = NTASGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0, patience=0)
    optimizer.param_groups[0]["params"][0].grad = torch.ones(1)
    optimizer.step()
    optimizer.swap()
    with pytest.raises(RuntimeError, match="call swap"):
        optimizer.step()
