"""The fused implementation, beside test_gated_cross_entropy.py; without a GPU, in the interpreter."""

import sys
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from agg_fairseq.f2 import factorized_cross_entropy
from agg_fairseq.f2.token_classes import TokenClasses
from agg_fairseq.functional import Gates, gated_cross_entropy, kernels, naive_gated_cross_entropy
from agg_fairseq.functional.kernels.chunked import ChunkedLoss
from tests.conftest import ROOT, run_command
from tests.waiting import use

pytest.importorskip("triton")
from agg_fairseq.functional.kernels.fused import FusedLoss, autocast_dtype

select = kernels.select  # the tests replace it in its module

PAD = 1
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture(autouse=True)
def fused(monkeypatch):
    use(FusedLoss, monkeypatch)


def problem(n=23, v=37, d=8, pads=5, dtype=torch.float32, scale=1.0):
    """H, W, and y with padding."""
    h, w = ((scale * torch.randn(size, d)).to(DEVICE, dtype).requires_grad_() for size in (n, v))
    y = torch.randint(2, v, (n,))
    y[torch.randperm(n)[:pads]] = PAD
    return h, w, y.to(DEVICE)


def leaves(*tensors, dtype=None):
    return [t.detach().to(dtype or t.dtype).requires_grad_() for t in tensors]


def fairseq_loss(h, w, y):
    """fairseq's criterion: logits in the model's dtype, their log-softmax in float32."""
    log_probs = F.log_softmax(F.linear(h, w), 1, dtype=torch.promote_types(h.dtype, torch.float32))
    return F.nll_loss(log_probs, y, reduction="sum")


@pytest.fixture
def rounding(monkeypatch):
    """Makes the interpreter round float32 to the nearest bfloat16, as a GPU does; by itself it truncates."""
    if DEVICE == "cuda":
        return
    from triton.runtime import interpreter

    original = interpreter._convert_float

    def convert(values, source, result, mode):
        if (source.name, result.name) == ("fp32", "bf16"):
            return torch.tensor(values).bfloat16().view(torch.int16).numpy()
        return original(values, source, result, mode)

    monkeypatch.setattr(interpreter, "_convert_float", convert)


@pytest.mark.parametrize(
    ("dtype", "spread", "loss_scale"),
    [
        (torch.float16, 1.0, 1.0),
        (torch.float16, 10.0, 2.0**15),
        (torch.bfloat16, 1.0, 2.0**15),
        (torch.bfloat16, 10.0, 1.0),
    ],
)
def test_half_precision_is_no_worse_than_fairseqs(rounding, dtype, spread, loss_scale):
    """The distance of both gradients from the float64 truth, for logits of up to about ±40."""
    v, n, d = 5003, 24, 16
    h, w, y = problem(n, v, d, pads=0, dtype=dtype, scale=(spread / d**0.5) ** 0.5)

    def gradients(loss_of, dtype):
        tensors = leaves(h, w, dtype=dtype)
        (loss_of(*tensors) * loss_scale).backward()
        return [t.grad.double() / loss_scale for t in tensors]

    truth = gradients(lambda h, w: fairseq_loss(h, w, y), torch.float64)
    theirs = gradients(lambda h, w: fairseq_loss(h, w, y), dtype)
    ours = gradients(lambda h, w: gated_cross_entropy(h, w, y).loss, dtype)
    for right, their, our in zip(truth, theirs, ours, strict=True):
        assert (our - right).norm() <= (their - right).norm() * 1.01 + 1e-12


def test_factorized_softmax_takes_it_too():
    """Class by class, with the value and gradients of the chunked implementation."""
    h, w, y = problem()
    u = torch.randn(3, 8, device=DEVICE)
    classes = TokenClasses.of(torch.arange(37, device=DEVICE) % 3)
    ours, truth = leaves(h, w), leaves(h, w, dtype=torch.float64)
    for tensors in (ours, truth):
        with pytest.MonkeyPatch.context() as patch:
            use(FusedLoss if tensors is ours else ChunkedLoss, patch)
            factorized_cross_entropy(
                *tensors, u.to(tensors[0].dtype), y, classes, label_smoothing=0.1, ignore_index=PAD
            ).loss.backward()
    torch.testing.assert_close([t.grad.double() for t in ours], [t.grad for t in truth], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_large_weights_of_positions_do_not_overflow(dtype):
    h, w, y = problem(dtype=dtype)
    weights, ours, truth = 1000 * torch.rand(y.shape, device=DEVICE), leaves(h, w), leaves(h, w, dtype=torch.float64)
    gated_cross_entropy(*ours, y, position_weight=weights, ignore_index=PAD).loss.backward()
    naive_gated_cross_entropy(*truth, y, position_weight=weights.double(), ignore_index=PAD).backward()
    for found, right in zip(ours, truth, strict=True):
        assert (found.grad.double() - right.grad).norm() <= 0.02 * right.grad.norm()


def test_autocast_decides_the_products(monkeypatch):
    """As for a linear layer; the gradients come in the dtype of their tensors."""
    h, w, y = problem()
    monkeypatch.setattr("agg_fairseq.functional.kernels.fused.autocast_dtype", lambda: torch.bfloat16)
    gated_cross_entropy(h, w, y, ignore_index=PAD).loss.backward()
    halves = leaves(h.bfloat16(), w.bfloat16())
    gated_cross_entropy(*halves, y, ignore_index=PAD).loss.backward()
    for found, half in zip((h, w), halves, strict=True):
        assert found.grad.dtype == torch.float32
        torch.testing.assert_close(found.grad.bfloat16(), half.grad)


@pytest.mark.parametrize(
    ("given", "implementation"),
    [
        ({"dtype": torch.bfloat16}, FusedLoss),
        ({}, FusedLoss),
        ({"dtype": torch.float64}, ChunkedLoss),
        ({"unlikelihood": 0.1}, ChunkedLoss),
        ({"z_loss": 0.1}, ChunkedLoss),
        ({"adversarial": 0.1}, ChunkedLoss),
        ({"is_cuda": False, "dtype": torch.bfloat16}, ChunkedLoss),
    ],
)
def test_which_implementation(given, implementation):
    assert implementation_for(**given) is implementation


def implementation_for(is_cuda=True, dtype=torch.float32, **terms):
    options = SimpleNamespace(**{"unlikelihood": None, "z_loss": 0.0, "adversarial": 0.0, **terms})
    return select(SimpleNamespace(is_cuda=is_cuda, dtype=dtype), options)


def test_where_triton_its_compiler_or_a_product_is_missing(monkeypatch):
    """Half precision needs products that end in float32: float16 would overflow at the 64th occurrence of a token."""
    with monkeypatch.context() as patch:
        patch.setenv("AGG_FAIRSEQ_TRITON", "0")
        assert implementation_for() is ChunkedLoss
        patch.setenv("AGG_FAIRSEQ_TRITON", "1")
        assert implementation_for() is FusedLoss
        patch.setattr("agg_fairseq.functional.kernels.importlib.util.find_spec", lambda name: None)
        assert implementation_for() is ChunkedLoss
    for version, hip in (("2.9.1", None), ("1.13.0+cu117", None), ("2.13.0", "7.0")):
        monkeypatch.setattr(torch, "__version__", version)
        monkeypatch.setattr(torch.version, "hip", hip)
        assert implementation_for(dtype=torch.float16) is ChunkedLoss and implementation_for() is FusedLoss


COMPILE = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from agg_fairseq.functional.kernels.triton_rows import BLOCK, _form_residuals as kernel

types = dict(target="*i64", rare="*u8", prediction="*i64", start="i32", vocabulary="i32", width="i32",
             ignore_index="i32", epsilon="fp32", share="fp32", scale="fp32", cap="fp32",
             logits="*{dtype}", gated="*{dtype}")
constants = dict(HAS_BIAS=True, HAS_IMPORTANCE=True, HAS_GATES=True, HAS_CAP=True, PREDICT=True, WRITE=True,
                 BLOCK=BLOCK)
signature = {{name: "constexpr" if name in constants else types.get(name, "*fp32") for name in kernel.arg_names}}
source = ASTSource(kernel, signature, {{(kernel.arg_names.index(name),): value for name, value in constants.items()}})
compiled = triton.compile(source, target=GPUTarget("cuda", {capability}, 32), options=dict(num_warps=8))
print(len(compiled.asm["cubin"]) > 0)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="Triton compiles on Linux")
@pytest.mark.parametrize(("dtype", "capability"), [("bf16", 90), ("fp16", 80)])
def test_compiles_for_gpus(dtype, capability, tmp_path):
    """Compiles to machine code, which needs no GPU, in a process that does not use the interpreter."""
    program = COMPILE.format(dtype=dtype, capability=capability)
    (tmp_path / "compile.py").write_text(program)
    environment = {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    assert run_command(sys.executable, tmp_path / "compile.py", env=environment).stdout == "True\n"


@pytest.mark.skipif(DEVICE == "cpu", reason="there is no GPU")
def test_gradients_on_a_gpu():
    """V = 44,256, in each dtype: close to float64, and without waiting for the device; and autocast's dtype."""
    for dtype, bound in ((torch.float32, 1e-4), (torch.float16, 4e-3), (torch.bfloat16, 3e-2)):
        h, w, y = problem(512, 44_256, 256, dtype=dtype, scale=0.25)
        rare, *gates = (torch.rand(44_256, device=DEVICE) for _ in range(3))
        ours, truth = leaves(h, w), leaves(h, w, dtype=torch.float64)
        torch.cuda.set_sync_debug_mode("error")
        try:
            gated_cross_entropy(*ours, y, gates=Gates(rare < 0.5, *gates), ignore_index=PAD).loss.backward()
        finally:
            torch.cuda.set_sync_debug_mode("default")
        exact = Gates(rare < 0.5, *(gate.double() for gate in gates))
        naive_gated_cross_entropy(*truth, y, gates=exact, ignore_index=PAD).backward()
        for found, right in zip(ours, truth, strict=True):
            assert (found.grad.double() - right.grad).norm() <= bound * right.grad.norm()
    assert autocast_dtype() is None
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert autocast_dtype() == torch.bfloat16
