import copy

import pytest
import torch
from torch.testing import assert_close

from agg_fairseq.optim import EmbeddingAdam

OPTIONS = {"lr": 0.01, "betas": (0.9, 0.98), "eps": 1e-8, "weight_decay": 0.1}
ROWS = torch.tensor([0.0, 0.5, 0.9, 0.99, 0.999, 0.999999, 0.98]).double()
KINDS = {
    "own": {},
    "beta2": {"betas": (0.9, 0.9995)},
    "rows": {"betas": (0.9, ROWS)},
    "coupled": {"coupled": True},
}


def oracle(weight, gradients, *, coupled=False, lr, betas, eps, weight_decay):
    m, v = torch.zeros_like(weight), torch.zeros_like(weight)
    beta2 = torch.as_tensor(betas[1], dtype=torch.float64).expand(len(weight))[:, None]
    for step, gradient in enumerate(gradients, start=1):
        m = betas[0] * m + (1 - betas[0]) * gradient
        v = beta2 * v + (1 - beta2) * gradient**2
        m_hat, v_hat = m / (1 - betas[0] ** step), v / (1 - beta2**step)
        if coupled:
            v_hat = torch.stack([v_hat.sum(0) / len(v_hat)] * len(v_hat))
        weight = weight - lr * weight_decay * weight - lr * m_hat / (v_hat.sqrt() + eps)
    return weight


def trained(weight, gradients, group, **options):
    parameter = torch.nn.Parameter(weight.clone())
    optimizer = EmbeddingAdam([{"params": [parameter], **group}], **options)
    for gradient in gradients:
        parameter.grad = gradient.clone()
        optimizer.step()
    return parameter.detach(), optimizer


def test_defaults_are_those_of_fairseqs_adam():
    expected = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0, "coupled": False}
    assert EmbeddingAdam([torch.nn.Parameter(torch.zeros(2))]).defaults == expected


@pytest.mark.parametrize("kind", KINDS)
def test_equations(kind):
    weight, group = torch.randn(7, 3, dtype=torch.float64), KINDS[kind]
    sizes = torch.tensor([1, 1e-1, 1e-2, 1e-3, 1e-4, 0, 1e-5]).double()[:, None]
    gradients = [torch.randn(7, 3, dtype=torch.float64) * sizes for _ in range(30)]
    options = {**OPTIONS, "eps": 1e-30}  # the row of zeros: 0/0
    result, optimizer = trained(weight, gradients, group, **options)
    assert_close(result, oracle(weight, gradients, **{**options, **group}), rtol=1e-12, atol=1e-12)
    [state] = optimizer.state.values()
    assert state["exp_avg_sq"].shape == ((3,) if kind == "coupled" else (7, 3))


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [("rows", torch.float32), ("rows", torch.float16), ("coupled", torch.bfloat16)],
)
def test_weights_are_updated_in_float32_and_the_state_stays_as_it_is(kind, dtype):
    weight, gradient = torch.randn(7, 4).to(dtype), torch.randn(7, 4).to(dtype)
    found, optimizer = trained(weight, [gradient], KINDS[kind], **OPTIONS)
    wide, _ = trained(weight.float(), [gradient.float()], KINDS[kind], **OPTIONS)
    assert torch.equal(found, wide.to(dtype))
    parameter, saved = torch.nn.Parameter(found), copy.deepcopy(optimizer.state_dict())
    resumed = EmbeddingAdam([{"params": [parameter], **KINDS[kind]}], lr=1.0)
    resumed.load_state_dict(saved)
    for name, value in saved["state"][0].items():
        assert_close(resumed.state[parameter][name], value, rtol=0, atol=0)
        assert name == "step" or value.dtype == torch.float32
    assert resumed.param_groups[0]["lr"] == OPTIONS["lr"]


def test_the_state_follows_its_parameter_to_another_device():
    """As fairseq restores the state with --memory-efficient-fp16: on the CPU, whatever the device
    of the model."""
    _, restored = trained(torch.zeros(7, 2), [torch.ones(7, 2)], {})
    parameter = torch.nn.Parameter(torch.zeros(7, 2, device="meta"))
    optimizer = EmbeddingAdam([parameter])
    [state] = restored.state.values()
    optimizer.state[parameter], parameter.grad = state, torch.ones_like(parameter)
    optimizer.step()
    assert {state[name].device.type for name in ("exp_avg", "exp_avg_sq")} == {"meta"}


@pytest.mark.parametrize("kind", ["beta2", "coupled"])
def test_a_state_of_torch_goes_on_with_its_moments_and_our_second_moment(kind):
    gradients = list(torch.randn(5, 7, 3, dtype=torch.float64))
    parameter = torch.nn.Parameter(torch.zeros(7, 3, dtype=torch.float64))
    first = torch.optim.AdamW([parameter], lr=0.5, betas=(0.9, 0.98), eps=1e-30, weight_decay=0.0)
    for gradient in gradients[:4]:
        parameter.grad = gradient.clone()
        first.step()
    optimizer = EmbeddingAdam([{"params": [parameter], **KINDS[kind]}], lr=1.0, betas=(0.9, 0.98))
    optimizer.load_state_dict(first.state_dict())
    _, beta2 = optimizer.param_groups[0]["betas"]
    assert beta2 == KINDS[kind].get("betas", (0.9, 0.98))[1]
    start, v = parameter.detach().clone(), first.state[parameter]["exp_avg_sq"]
    m = 0.9 * first.state[parameter]["exp_avg"] + 0.1 * gradients[4]
    v = beta2 * v + (1 - beta2) * gradients[4] ** 2
    v = v.mean(0) if kind == "coupled" else v
    parameter.grad = gradients[4].clone()
    optimizer.step()
    correction = (1 - beta2**5) ** 0.5 / (1 - 0.9**5)
    assert_close(parameter.detach(), start - 0.5 * correction * m / v.sqrt())


def test_parameters_without_a_gradient_keep_their_own_number_of_steps():
    gradients = list(torch.randn(5, 7, 3, dtype=torch.float64))
    parameters = [torch.nn.Parameter(torch.ones(7, 3, dtype=torch.float64)) for _ in range(3)]
    optimizer = EmbeddingAdam(parameters, **OPTIONS)
    for number, gradient in enumerate(gradients):
        for parameter in parameters:
            parameter.grad = gradient.clone()
        parameters[1].grad = None if number % 2 else gradient.clone()
        optimizer.step()
    start = torch.ones(7, 3).double()
    every, some = oracle(start, gradients, **OPTIONS), oracle(start, gradients[::2], **OPTIONS)
    assert_close([p.detach() for p in parameters], [every, some, every])
    without = torch.nn.Parameter(torch.ones(2))  # it has no state to be restored
    optimizer.add_param_group({"params": [without]})
    resumed = EmbeddingAdam([{"params": parameters}, {"params": [without]}])
    resumed.load_state_dict(optimizer.state_dict())
    assert resumed.state.keys() == set(parameters)


@pytest.mark.parametrize(
    ("name", "value"),
    [("lr", -1), ("eps", -1), ("weight_decay", -1), ("betas", (0.9, 1.0)), ("betas", (-0.1, 0.9)),
     ("betas", (0.9, torch.tensor([0.9, 1.0])))],
)  # fmt: skip
def test_options_out_of_range(name, value):
    expected = r"betas in \[0, 1\)" if name == "betas" else f"{name} of at least 0, got -1"
    with pytest.raises(ValueError, match=f"expected {expected}"):
        EmbeddingAdam([torch.nn.Parameter(torch.zeros(2, 2))], **{name: value})
