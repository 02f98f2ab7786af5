"""Handing over gradients that the forward pass has formed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def scaled_gradients(ctx: Any, scale: Tensor, name: str) -> list[Tensor | None]:
    """What a `backward` returns: `ctx.gradients` times what autograd hands down, in their own memory.

    Args:
        ctx: of the `torch.autograd.Function`; its `gradients` is a list of None or (gradient, wanted dtype).
        scale: a scalar: 1, or a loss scale.
        name: of the operation, for the error's text.

    Raises:
        RuntimeError: a second call; the first has used the gradients up.
    """
    if ctx.gradients is None:
        raise RuntimeError(
            f"{name}: backward ran twice over the same loss, but its gradients are used up after the first; compute "
            "the loss again"
        )
    gradients, ctx.gradients = ctx.gradients, None
    return [_scaled_(gradient, scale) for gradient in gradients]


def _scaled_(gradient: tuple[Tensor, torch.dtype] | None, scale: Tensor) -> Tensor | None:
    if gradient is None:
        return None
    tensor, dtype = gradient
    if scale.is_cuda or scale.item() != 1:
        tensor.mul_(scale.to(tensor.dtype))
    return tensor.to(dtype)
