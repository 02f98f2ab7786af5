"""Losses that form their gradients along with their values.

Over a large vocabulary the logits are the largest tensor of a training step. A loss that forms its
gradients in the forward pass computes them only once, chunk by chunk; the backward pass multiplies
the gradients by that of the loss. So half precision does not make them underflow before the loss
scale is applied.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

CHUNK_ELEMENTS = 2**23
"""Logits held at a time on a CPU: 32 MiB in float32."""
GPU_CHUNK_ELEMENTS, GPU_CHUNK_ROWS = 2**26, 2**11
"""On a GPU, or so many positions, whichever is more: each chunk of C positions adds to dL/dW, and
that traffic of 8·V·D bytes is to be small beside the 6·C·V·D operations of its products, for which
a GPU takes as long as for C/250 times as many bytes."""


def chunk_rows(weight: Tensor) -> int:
    """The number C of positions in a chunk of logits over W (V, D), at least one."""
    if weight.is_cuda:
        return max(GPU_CHUNK_ROWS, GPU_CHUNK_ELEMENTS // len(weight))
    return max(1, CHUNK_ELEMENTS // len(weight))


def working_dtype(given: Tensor) -> torch.dtype:
    """The dtype of values and gradients: float32, or float64 for a float64 tensor."""
    return torch.float64 if given.dtype == torch.float64 else torch.float32


def wants_gradient(tensor: Tensor | None) -> bool:
    """Will a backward pass ask for the gradient of this tensor?"""
    return tensor is not None and tensor.requires_grad and torch.is_grad_enabled()


def with_gradients(
    loss: Tensor,
    inputs: Sequence[Tensor | None],
    gradients: Sequence[Tensor | None],
    targets: Tensor,
) -> Tensor:
    """The scalar `loss`, as a function of `inputs` whose gradients are known.

    `backward` may run once, since it multiplies the gradients in their own memory; a second run is
    a RuntimeError, and so are second derivatives. A loss without targets has a gradient of 0, also
    where it is divided by their number.

    Args:
        loss: its value, without a graph.
        inputs: what it is a function of.
        gradients: of `loss` with respect to each input; None where none is wanted. They are used
            up.
        targets: a scalar, the number of targets that the loss is summed over.
    """
    return _WithGradients.apply(loss, gradients, targets, *inputs)


class _WithGradients(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, loss: Tensor, gradients: Any, targets: Tensor, *inputs: Any) -> Tensor:
        ctx.gradients, ctx.targets = gradients, targets
        ctx.dtypes = [None if tensor is None else tensor.dtype for tensor in inputs]
        return loss.clone()  # which the caller may change in place

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivatives()
        if ctx.gradients is None:
            raise RuntimeError(
                "backward ran twice over the same loss, but its gradients are used up after the "
                "first; compute the loss again"
            )
        gradients, ctx.gradients = ctx.gradients, None
        # not 0 · ∞ where a loss is divided by 0 targets
        scale = torch.where(ctx.targets > 0, grad_loss, 0.0)
        results: list[Tensor | None] = []
        for gradient, dtype in zip(gradients, ctx.dtypes, strict=True):
            if gradient is None:
                results.append(None)
            elif gradient.dtype != dtype:  # one pass that multiplies and rounds
                rounded = torch.empty_like(gradient, dtype=dtype)
                results.append(torch.mul(gradient, scale.to(gradient.dtype), out=rounded))
            elif is_one(scale):
                results.append(gradient)
            else:
                results.append(gradient.mul_(scale.to(dtype)))
        return None, None, None, *results


def is_one(scale: Tensor) -> bool:
    """Can a pass over the gradients be saved? On a GPU never: to read the scale is to wait for the
    device."""
    return not scale.is_cuda and scale.item() == 1


def refuse_second_derivatives() -> None:
    """Raises RuntimeError in a backward pass with create_graph.

    torch's `once_differentiable` raises only where the incoming gradient has a graph too; otherwise
    second derivatives would lack the part of this operation, without a word.
    """
    if torch.is_grad_enabled():
        raise RuntimeError("this loss has no second derivatives; leave out create_graph=True")
