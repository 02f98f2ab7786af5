"""What runs on a GPU, on tensors that only say that they are there: torch's FakeTensorMode knows
shapes and devices, and an operation over tensors of two devices is an error, as on a GPU.

A torch without CUDA cannot slice a fake tensor on "cuda", nor record operations for autograd. So
the device is "meta", whose tensors say here that they are on a GPU.
"""

import contextlib
import dataclasses

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from agg_fairseq.f2 import TokenClasses, cross_entropy, decoupled_decoding, equal_frequency
from agg_fairseq.functional import (
    Gates,
    cosine_regularizer,
    early_gradients,
    gated_cross_entropy,
    previous_tokens,
)
from agg_fairseq.objective import AggObjective, AgpsObjective, Objective

GPU = "meta"
V, D, B, STEPS, C = 64, 8, 3, 16, 4


class Arrived:
    """An event or a stream without a GPU."""

    def __init__(self, *device):
        pass

    def record(self, *stream):
        pass

    def record_event(self):
        return self

    def synchronize(self):
        pass


@pytest.fixture
def gpu(monkeypatch):
    with fake_gpu(monkeypatch) as mode:
        yield mode


@contextlib.contextmanager
def fake_gpu(monkeypatch):
    """Fake tensors. Numbers that are read rise to N, and five numbers of a tensor are not zero."""
    on_gpu = property(lambda tensor: tensor.device.type == GPU)
    monkeypatch.setattr(FakeTensor, "is_cuda", on_gpu, raising=False)
    monkeypatch.setattr(torch.cuda, "Event", Arrived)
    monkeypatch.setattr(torch.cuda, "current_stream", Arrived)
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: False)
    monkeypatch.setattr(torch, "autocast", lambda *device, **options: contextlib.nullcontext())
    for name, value in {"GPU_CHUNK_ROWS": 7, "GPU_CHUNK_ELEMENTS": 7 * V}.items():
        monkeypatch.setattr(early_gradients, name, value)

    def tolist(tensor):
        return [B * STEPS * (number + 1) // tensor.numel() for number in range(tensor.numel())]

    def nonzero(tensor):
        return torch.arange(5, device=tensor.device)[:, None]

    monkeypatch.setattr(FakeTensor, "tolist", tolist)
    monkeypatch.setattr(FakeTensor, "nonzero", nonzero, raising=False)
    monkeypatch.setattr(FakeTensor, "pin_memory", lambda tensor: tensor, raising=False)
    with FakeTensorMode() as mode:
        yield mode


def there(value, mode):
    """Tensors, those in tuples and dataclasses too, on the fake GPU."""
    if isinstance(value, torch.Tensor):
        return (value if isinstance(value, FakeTensor) else mode.from_tensor(value)).to(GPU)
    if isinstance(value, tuple):
        parts = [there(part, mode) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if dataclasses.is_dataclass(value):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        return dataclasses.replace(value, **{n: there(f, mode) for n, f in fields.items()})
    return value


def problem(dtype=torch.float32):
    h = torch.randn(B, STEPS, D, device=GPU, dtype=dtype, requires_grad=True)
    weight = torch.randn(V, D, device=GPU, dtype=dtype, requires_grad=True)
    return h, weight, torch.randint(V, (B, STEPS), device=GPU)


def are_there(*tensors):
    return all(tensor.device.type == GPU for tensor in tensors if tensor is not None)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("terms", ["gates", "softcap", "all"])
def test_gated_cross_entropy(terms, dtype, gpu):
    h, weight, y = problem(dtype)
    rare = torch.zeros(V, dtype=torch.bool, device=GPU)
    g1, g2, bias = torch.rand(3, V, device=GPU)
    options = {"gates": Gates(rare, g1, g2), "bias": bias, "label_smoothing": 0.1}
    options |= {"softcap": {"softcap": 5.0, "scale": 0.5}}.get(terms, {})
    if terms == "all":
        options |= {"candidates": previous_tokens(y, 1), "adv_epsilon": 0.1, "predict": True}
        options |= {"position_weight": torch.rand(B, STEPS, device=GPU)}
    output = gated_cross_entropy(h, weight, y, **options)
    output.loss.backward()
    assert are_there(*output, h.grad, weight.grad)
    assert are_there(cosine_regularizer(weight, ignore_index=1))


OBJECTIVES = {
    "mle": lambda: Objective(V, ul_alpha=1.0, cosreg_gamma=1.0, label_smoothing=0.1),
    "agg": lambda: AggObjective(V, rare_fraction=0.3, window=1),
    "agg alpha": lambda: AggObjective(V, alpha=0.1, window=2, count_current_batch=True),
    "agps": lambda: AgpsObjective(V, rare_rank=30, counts=torch.ones(V, dtype=torch.int64)),
}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_an_objective_follows_its_features_and_its_counter_restores_a_state(name, gpu):
    objective = OBJECTIVES[name]()
    for _ in range(3):
        h, weight, y = problem()
        output = objective(h, weight, y)
        output.loss.backward()
        assert are_there(*output[:3], h.grad, weight.grad)
        objective.commit_update()
    assert are_there(*objective.buffers())
    if objective.counter is not None:
        state = objective.counter.get_extra_state()
        assert {value.device.type for value in state.values() if torch.is_tensor(value)} == {"cpu"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("merged", [0, 2**20])
def test_f2_softmax(merged, smoothing, dtype, monkeypatch):
    monkeypatch.setattr(cross_entropy, "GPU_MERGED_LOGITS", merged)
    classes = TokenClasses.of(equal_frequency(torch.arange(V, 0, -1), C).roll(3))
    with fake_gpu(monkeypatch) as mode:
        classes = there(classes, mode)
        h, weight, y = problem(dtype)
        u = torch.randn(C, D, device=GPU, dtype=dtype, requires_grad=True)
        options = {"label_smoothing": smoothing, "ignore_index": 1}
        output = cross_entropy.factorized_cross_entropy(h, weight, u, y, classes, **options)
        output.loss.backward()
        joint = cross_entropy.joint_log_prob(h, weight, u, classes)
        joint.sum().backward()
        assert are_there(*output, joint, h.grad, weight.grad, u.grad)
        chosen = decoupled_decoding.choose_class(h, u, sample=False)
        assert are_there(decoupled_decoding.decoupled_log_prob(h, weight, u, classes, chosen))


def test_tensors_of_two_devices_are_an_error(gpu):
    h, weight, y = problem()
    with pytest.raises(Exception, match="device"):
        gated_cross_entropy(h, weight.cpu(), y)
