"""The tests of losses on a GPU, on a CPU: as they are, and with tensors that say they are on CUDA."""

import pytest
import torch

from agg_fairseq.f2.cross_entropy import MERGED_LOGITS
from agg_fairseq.functional import softmax_kernel
from agg_fairseq.functional.losses import softmax_grad_
from agg_fairseq.gating import AggGating
from tests.gpu.test_losses import (  # noqa: F401
    sizes,
    test_cosine_regularizer,
    test_factorized_cross_entropy,
    test_gated_loss,
    test_updates_on_the_gpu_are_those_of_the_cpu,
)
from tests.pretend_cuda import CUDA, PretendCuda, there, unwrapped

pytestmark = pytest.mark.grid(5)


def run_kernel(logits, target, omega, share, others, dtype):
    """The operations of torch in place of the kernel, which test_softmax_kernel.py compares."""
    smoothing = share * logits.size(1)
    assert others == pytest.approx(smoothing - share)
    on_cpu = [unwrapped(one) for one in (logits, target, omega)]
    return there(softmax_grad_(*on_cpu, dtype, smoothing), CUDA)


@pytest.fixture(params=["cpu", "GPU", "GPU, kernel, merged classes"])
def device(request, monkeypatch):
    if request.param == "cpu":
        yield "cpu"
        return
    monkeypatch.setattr(softmax_kernel, "can_run", lambda _: "kernel" in request.param)
    monkeypatch.setattr(softmax_kernel, "softmax_grad_", run_kernel)
    monkeypatch.setitem(MERGED_LOGITS, "cuda", 2**20 if "merged" in request.param else 0)
    with PretendCuda():
        yield str(CUDA)


def test_the_pretended_device_refuses_a_tensor_of_the_cpu():
    with PretendCuda(), pytest.raises(RuntimeError, match="found cuda and cpu"):
        torch.ones(3).to(CUDA) + torch.ones(3)


def test_a_rule_follows_its_targets_and_its_state_is_on_the_cpu():
    rule, y = AggGating(30, rare_fraction=0.3, window=1), torch.arange(30)
    with PretendCuda():
        for place in ("cpu", CUDA, CUDA):
            gates = rule(y.to(place))
            rule.commit_update()
        assert gates.g1.device == CUDA
        (state,) = rule.counter.get_extra_state()
    assert {value.device.type for value in state.values() if torch.is_tensor(value)} == {"cpu"}
