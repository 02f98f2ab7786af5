"""The kernel for GPUs, run on a CPU by Triton's interpreter, beside the operations of torch."""

import itertools

import pytest
import torch

from agg_fairseq.functional import losses, softmax_kernel
from tests.conftest import run_command

pytest.importorskip("triton")
# Triton's interpreter cuts bfloat16 off, where a GPU rounds: twice the error.
LARGEST = {torch.float32: 1e-6, torch.bfloat16: 8e-3, torch.float16: 8e-4}
GRID = itertools.product(LARGEST, (69, 1), (0.0, 0.1), (False, True))


def check_kernel():
    """Rows of 80 numbers, of which the kernel may hold 32 at a time; some targets are likely."""
    softmax_kernel.BLOCK = 32
    torch.manual_seed(0)
    for case in GRID:
        dtype, vocabulary, smoothing, is_weighted = case
        logits = (3 * torch.randn(5, 80))[:, :vocabulary]
        target, weight = torch.randint(vocabulary, (5,)), torch.rand(5) if is_weighted else None
        logits[range(5), target] += 3.0 * torch.arange(5)
        exact = losses.softmax_grad_(
            logits.double(), target, weight, torch.float64, label_smoothing=smoothing
        )
        share = smoothing / vocabulary
        found = softmax_kernel.softmax_grad_(
            logits, target, weight, share, smoothing - share, dtype
        )
        assert found[0].dtype == dtype
        for one, expected in zip(found, exact, strict=True):
            if expected is not None:
                error = (one - expected).norm()
                assert error <= LARGEST[dtype] * expected.norm(), case


def test_the_kernel_computes_the_softmax():
    """In a process of its own: Triton decides when kernels are defined whether it interprets them."""
    program = "from tests.unit.test_softmax_kernel import check_kernel; check_kernel()"
    run_command("python", "-c", program, env={"TRITON_INTERPRET": "1"})
