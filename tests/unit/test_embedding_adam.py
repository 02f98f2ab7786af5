import copy

import pytest
import torch

from agg_fairseq.optim import EmbeddingAdam

OPTIONS = {"lr": 0.01, "betas": (0.9, 0.98), "eps": 1e-8, "weight_decay": 0.1}


def oracle(weight, gradients, coupled, *, lr, betas, eps, weight_decay):
    """Adam with decoupled weight decay; the corrected second moments of all rows are replaced by their average."""
    (beta1, beta2), m, v = betas, torch.zeros_like(weight), torch.zeros_like(weight)
    for step, gradient in enumerate(gradients, start=1):
        m = beta1 * m + (1 - beta1) * gradient
        v = beta2 * v + (1 - beta2) * gradient**2
        m_hat, v_hat = m / (1 - beta1**step), v / (1 - beta2**step)
        if coupled:
            v_hat = torch.stack([v_hat.sum(0) / len(v_hat)] * len(v_hat))
        weight = weight - lr * weight_decay * weight - lr * m_hat / (v_hat.sqrt() + eps)
    return weight


def trained(weight, gradients, coupled, **options):
    parameter = torch.nn.Parameter(weight.clone())
    optimizer = EmbeddingAdam([{"params": [parameter], "coupled": coupled}], **options)
    for gradient in gradients:
        parameter.grad = gradient.clone()
        optimizer.step()
    return parameter.detach(), optimizer


@pytest.mark.parametrize("coupled", [True, False])
def test_equations(coupled):
    """With rows whose gradients have different sizes, and one that never gets a gradient."""
    weight = torch.randn(7, 3, dtype=torch.float64)
    sizes = torch.tensor([1, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 0]).double()[:, None]
    gradients = [torch.randn(7, 3, dtype=torch.float64) * sizes for _ in range(30)]
    options = {**OPTIONS, "eps": 0} if coupled else {**OPTIONS, "eps": 1e-30}  # the row of zeros: 0/0
    found, optimizer = trained(weight, gradients, coupled, **options)
    torch.testing.assert_close(found, oracle(weight, gradients, coupled, **options), rtol=1e-12, atol=1e-12)
    [state] = optimizer.state.values()
    assert state["exp_avg_sq"].shape == ((3,) if coupled else (7, 3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_weights_are_updated_in_float32_and_the_state_stays_float32(dtype):
    weight, gradient = torch.randn(8, 4).to(dtype), torch.randn(8, 4).to(dtype)
    found, optimizer = trained(weight, [gradient], True, **OPTIONS)
    assert torch.equal(found, trained(weight.float(), [gradient.float()], True, **OPTIONS)[0].to(dtype))
    parameter, saved = torch.nn.Parameter(found), copy.deepcopy(optimizer.state_dict())
    resumed = EmbeddingAdam([{"params": [parameter], "coupled": True}], lr=1.0)
    resumed.load_state_dict(saved)
    assert saved["state"][0]["exp_avg"].dtype == saved["state"][0]["exp_avg_sq"].dtype == torch.float32
    for name, value in saved["state"][0].items():  # not rounded to the dtype of the weights, as torch would
        torch.testing.assert_close(resumed.state[parameter][name], value, rtol=0, atol=0)
    assert resumed.state_dict()["param_groups"] == saved["param_groups"]


def test_the_state_follows_its_parameter_to_another_device():
    """As fairseq restores the state with --memory-efficient-fp16: on the CPU, whatever the device of the model."""
    parameter = torch.nn.Parameter(torch.zeros(3, 2, device="meta"))
    optimizer = EmbeddingAdam([{"params": [parameter], "coupled": True}])
    optimizer.state[parameter] = {"step": 1, "exp_avg": torch.zeros(3, 2), "exp_avg_sq": torch.zeros(2)}
    parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    assert {value.device.type for value in optimizer.state[parameter].values() if torch.is_tensor(value)} == {"meta"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"betas": (0.9, 1.0)}, r"betas: expected two numbers in \[0, 1\), got \(0.9, 1.0\)"),
        ({"lr": -1.0}, "lr: expected a finite value of at least 0, got -1.0"),
        ({"eps": float("nan")}, "eps: expected a finite value of at least 0, got nan"),
        ({"weight_decay": float("inf")}, "weight_decay: expected a finite value of at least 0, got inf"),
        ({"shape": (3,)}, r"expected coupled parameters of shape \(V, D\), got \(3,\)"),
    ],
)
def test_errors(options, message):
    shape = options.pop("shape", (3, 2))
    with pytest.raises(ValueError, match=message):
        EmbeddingAdam([{"params": [torch.nn.Parameter(torch.zeros(shape))], "coupled": True}], **options)
