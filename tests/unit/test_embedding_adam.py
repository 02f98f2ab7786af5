import copy

import pytest
import torch
from torch.testing import assert_close

from agg_fairseq.optim import EmbeddingAdam

OPTIONS = {"lr": 0.01, "betas": (0.9, 0.98), "eps": 1e-8, "weight_decay": 0.1}
KINDS = {"own": {}, "beta2": {"betas": (0.9, 0.9995)}, "coupled": {"coupled": True}}


def oracle(weight, gradients, *, coupled=False, lr, betas, eps, weight_decay):
    m, v = torch.zeros_like(weight), torch.zeros_like(weight)
    beta2 = betas[1]
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
    [("own", torch.float16), ("coupled", torch.float32), ("coupled", torch.bfloat16)],
)
def test_weights_are_updated_in_float32_and_the_state_stays_as_it_is(kind, dtype):
    weight, gradient = torch.randn(7, 4).to(dtype), torch.randn(7, 4).to(dtype)
    found, optimizer = trained(weight, [gradient], KINDS[kind], **OPTIONS)
    wide, _ = trained(weight.float(), [gradient.float()], KINDS[kind], **OPTIONS)
    assert torch.equal(found, wide.to(dtype))
    parameter, saved = torch.nn.Parameter(found), copy.deepcopy(optimizer.state_dict())
    resumed = EmbeddingAdam([{"params": [parameter], **KINDS[kind]}], lr=1.0)
    resumed.load_state_dict(saved)
    with pytest.raises(ValueError, match="got another optimizer's"):
        resumed.load_state_dict(torch.optim.AdamW([parameter]).state_dict())
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


@pytest.mark.parametrize(
    ("name", "value"),
    [("lr", -1), ("eps", -1), ("weight_decay", -1), ("betas", (0.9, 1.0)), ("betas", (-0.1, 0.9)),
     ("betas", (0.9, torch.tensor([0.9, 0.98])))],
)  # fmt: skip
def test_options_out_of_range(name, value):
    expected = r"betas in \[0, 1\)" if name == "betas" else f"{name} of at least 0, got -1"
    with pytest.raises(ValueError, match=f"expected {expected}"):
        EmbeddingAdam([torch.nn.Parameter(torch.zeros(2, 2))], **{name: value})


@pytest.mark.parametrize("shape", [(6,), (), (2, 3, 1)])
def test_a_coupled_parameter_is_a_matrix(shape):
    """A shard of FSDP1 is flat: its rows are single numbers."""
    optimizer = EmbeddingAdam([torch.nn.Parameter(torch.zeros(2))])
    with pytest.raises(ValueError, match=r"of shape \(V, D\), got one of shape"):
        optimizer.add_param_group({"params": torch.zeros(shape), "coupled": True})
