"""Runs the losses with the kernels for GPUs, by Triton's interpreter, beside the float64 oracles.

Triton decides when kernels are defined whether they are interpreted, so that this is a process of
its own: `TRITON_INTERPRET=1 python -m tests.interpreted_kernel`. Prints a JSON list of cases with the
relative errors of the loss and of its gradients.
"""

import json
import sys

import torch

from agg_fairseq.f2 import TokenClasses, factorized_cross_entropy, joint_log_prob
from agg_fairseq.functional import (
    Gates,
    chunks,
    naive_gated_cross_entropy,
    previous_tokens,
    softmax_kernel,
)
from tests.losses import gated

V, N, D = 69, 12, 16  # V is no multiple of 8, nor of the block
PAIRS = [(a, b, c, a ^ c, b ^ c) for a in (0, 1) for b in (0, 1) for c in (0, 1)]
NAMES = ("gated", "smoothed", "weighted", "ul", "adversarial")


def pretend_gpu():
    """Kernels run."""
    softmax_kernel.can_run = lambda tensor: tensor.dtype != torch.float64
    softmax_kernel.BLOCK = 32
    chunks.CHUNK_ELEMENTS, chunks.CHUNK_ROWS = 5 * V, 1


def error(found, expected):
    return ((found.double() - expected).norm() / expected.norm()).item()


def errors(dtype, is_gated, smoothed, weighted, ul, adversarial):
    """Relative errors of loss, dL/dH and dL/dW."""
    generator = torch.Generator().manual_seed(is_gated + 2 * smoothed + 4 * weighted)
    h = torch.randn(2, N // 2, D, generator=generator).to(dtype).requires_grad_()
    w = (0.3 * torch.randn(V, D, generator=generator)).to(dtype).requires_grad_()
    y = torch.randint(V, (2, N // 2), generator=generator)
    y[:, ::7] = -100
    gates = Gates(torch.arange(V) > 30, *torch.rand(2, V, generator=generator))
    options = {
        "gates": gates if is_gated else None,
        "label_smoothing": 0.1 * smoothed,
        "position_weight": torch.rand(y.shape, generator=generator) if weighted else None,
        "ul_alpha": 1.0 * ul,
        "adv_epsilon": 0.05 * adversarial,
    }
    loss = gated(h, w, y, **options).loss
    found = [loss, *torch.autograd.grad(loss, (h, w))]
    h, w = (tensor.detach().double().requires_grad_() for tensor in (h, w))
    options["candidates"] = previous_tokens(y, -100) if ul else None
    expected = naive_gated_cross_entropy(h, w, y, **options)
    expected = [expected, *torch.autograd.grad(expected, (h, w))]
    return [error(*pair) for pair in zip(found, expected, strict=True)]


def factorized_errors(dtype, merged, is_sorted):
    """Relative errors of the factorized loss, dL/dH, dL/dW and dL/dU."""
    generator = torch.Generator().manual_seed(merged)
    class_ids = (torch.arange(V) ** 0.5).long()  # classes of 1 to 15 tokens
    if not is_sorted:
        class_ids = class_ids[torch.randperm(V, generator=generator)]
    classes = TokenClasses.of(class_ids)
    shapes = (N, D), (V, D), (classes.number, D)
    inputs = [
        torch.randn(shape, generator=generator).to(dtype).requires_grad_() for shape in shapes
    ]
    y = torch.randint(V, (N,), generator=generator)
    y[::7] = -100
    sys.modules["agg_fairseq.f2.cross_entropy"].MERGED_LOGITS["cpu"] = merged
    loss = factorized_cross_entropy(*inputs, y, classes).loss
    found = [loss, *torch.autograd.grad(loss, inputs)]
    inputs = [tensor.detach().double().requires_grad_() for tensor in inputs]
    kept = y >= 0
    log_p = joint_log_prob(inputs[0][kept], *inputs[1:], classes)
    expected = -log_p.gather(1, y[kept, None]).sum()
    expected = [expected, *torch.autograd.grad(expected, inputs)]
    return [error(*pair) for pair in zip(found, expected, strict=True)]


def main():
    pretend_gpu()
    cases = []
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for number, options in enumerate(PAIRS):
            if dtype == torch.float32 or number % 2 == (dtype == torch.float16):
                case = {"dtype": str(dtype), **dict(zip(NAMES, options, strict=True))}
                cases.append(case | {"errors": errors(dtype, *options)})
        for merged in (0, 100, 10**6):
            for is_sorted in (True, False):
                case = {"dtype": str(dtype), "merged": merged, "is_sorted": is_sorted}
                cases.append(case | {"errors": factorized_errors(dtype, merged, is_sorted)})
    logits, only = torch.ones(2, 1), torch.zeros(2, dtype=torch.int64)
    row = softmax_kernel.softmax_grad_(logits, only, None, 0.1, 0.0, torch.float32)
    assert row[-1].tolist() == [0, 0], "−Σ log P of a vocabulary of one token"
    assert not softmax_kernel._failed
    print(json.dumps(cases))


if __name__ == "__main__":
    main()
