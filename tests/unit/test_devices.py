"""Losses and rules of tensors on a GPU: the numbers of a CPU, each tensor on the right device."""

import pytest
import torch

from agg_fairseq.f2 import TokenClasses, cross_entropy, decoupled_decoding, equal_frequency
from agg_fairseq.functional import Gates, TrainingLoss, chunks, cosine_regularizer, softmax_kernel
from agg_fairseq.functional.losses import softmax_grad_
from agg_fairseq.gating import AggGating, AgpsGating
from tests.losses import gated
from tests.pretend_cuda import CUDA, PretendCuda, there, unwrapped

V, D = 30, 8


def test_the_pretended_device_refuses_a_tensor_of_the_cpu():
    with PretendCuda(), pytest.raises(RuntimeError, match="found cuda and cpu"):
        torch.ones(3).to(CUDA) + torch.ones(3)


BIAS, Y = torch.rand(V), torch.randint(V, (3, 6))
Y[0, :2] = 1  # ignored
GATES = Gates(torch.arange(V) > 20, *torch.rand(2, V))
SOME = {"position_weight": torch.rand(3, 6), "gates": GATES}
GATED = {"some": SOME, "all": SOME | {"ul_alpha": 1.0, "adv_epsilon": 0.1}}
RULES = {
    "agg": lambda: AggGating(V, rare_fraction=0.3, window=1),
    "agg alpha": lambda: AggGating(V, alpha=0.1, window=2, count_current_batch=True),
    "agps": lambda: AgpsGating(V, rare_rank=20, counts=torch.ones(V, dtype=torch.int64)),
}
CLASSES = TokenClasses.of(equal_frequency(torch.arange(V, 0, -1), 4).roll(3))


def gated_loss(h, w, u, options):
    options = options | {"bias": there(BIAS, h.device), "label_smoothing": 0.1}
    output = gated(h, w, there(Y, h.device), ignore_index=1, **options)
    return output.loss, cosine_regularizer(w, padding_row=1), *output[1:3]


def three_updates(h, w, u, name):
    """The first on the CPU."""
    gating, loss = RULES[name](), TrainingLoss(cosreg_gamma=1.0)
    for device in ("cpu", h.device, h.device):
        y = there(Y, device)
        output = loss(there(h, device), there(w, device), y, gates=gating(y))
        gating.commit_update()
    assert {buffer.device.type for buffer in gating.buffers()} <= {h.device.type}
    if gating.counter is not None:
        (state,) = gating.counter.get_extra_state()
        assert {value.device.type for value in state.values() if torch.is_tensor(value)} == {"cpu"}
    return output[:3]


def f2_softmax(h, w, u, smoothing):
    classes = there(CLASSES, h.device)
    options = {"label_smoothing": smoothing, "ignore_index": 1}
    output = cross_entropy.factorized_cross_entropy(h, w, u, there(Y, h.device), classes, **options)
    joint = cross_entropy.joint_log_prob(h, w, u, classes)
    chosen = decoupled_decoding.choose_class(h, u, sample=False)
    decoupled = decoupled_decoding.decoupled_log_prob(h, w, u, classes, chosen)
    return output.loss, joint.sum(), *output[1:], joint, decoupled


LOSSES = {
    **{f"gated, {name}": (gated_loss, options) for name, options in GATED.items()},
    **{name: (three_updates, name) for name in RULES},
    **{f"f2_softmax, {smoothing}": (f2_softmax, smoothing) for smoothing in (0.0, 0.1)},
}


HALF = ("gated, all", "agg", "f2_softmax, 0.0")


def run_kernel(logits, target, omega, share, others, dtype):
    """The operations of torch in place of the kernel, which test_softmax_kernel.py compares."""
    smoothing = share * logits.size(1)
    assert others == pytest.approx(smoothing - share)
    on_cpu = [unwrapped(one) for one in (logits, target, omega)]
    return there(softmax_grad_(*on_cpu, dtype, smoothing), CUDA)


@pytest.mark.parametrize("has_kernel", [False, True])
@pytest.mark.parametrize(
    ("name", "merged"), [*((name, 0) for name in LOSSES), ("f2_softmax, 0.0", 2**20)]
)
def test_a_loss_and_its_gradients_are_the_same_on_a_gpu(name, merged, has_kernel, monkeypatch):
    """In chunks, and with the classes of F²-Softmax merged or not."""
    for chunk, value in {"GPU_CHUNK_ROWS": 7, "GPU_CHUNK_ELEMENTS": 7 * V}.items():
        monkeypatch.setattr(chunks, chunk, value)
    monkeypatch.setattr(softmax_kernel, "can_run", lambda _: has_kernel)
    monkeypatch.setattr(softmax_kernel, "softmax_grad_", run_kernel)
    monkeypatch.setitem(cross_entropy.MERGED_LOGITS, "cuda", merged)
    loss, options = LOSSES[name]
    dtype, tolerance = (torch.bfloat16, 0.02) if name in HALF else (torch.float32, 1e-5)
    leaves, found = [torch.randn(*size, D, dtype=dtype) for size in ((3, 6), (V,), (4,))], {}
    with PretendCuda():
        for device in ("cpu", CUDA):
            moved = [leaf.detach().to(device).requires_grad_() for leaf in leaves]
            results = [one for one in loss(*moved, there(options, device)) if one is not None]
            sum(one.sum() for one in results if one.requires_grad).backward()
            results += [leaf.grad for leaf in moved if leaf.grad is not None]
            assert {one.device for one in results} == {torch.device(device)}
            found[device] = [there(one, "cpu") for one in results]
    torch.testing.assert_close(found[CUDA], found["cpu"], rtol=tolerance, atol=tolerance)
