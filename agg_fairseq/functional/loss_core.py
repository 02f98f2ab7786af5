"""What the losses of this package share: options, outputs, and gradients that are formed in the forward pass.

A loss over a large vocabulary forms its gradients along with its values, so that the logits are computed only once, and
rescales them in the backward pass. Gated cross-entropy (`kernels/`) and factorized cross-entropy
(`f2/cross_entropy.py`) do this with the functions of this file.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from .gates import Gates
from .unlikelihood import Unlikelihood

CHUNK_ELEMENTS = 2**23  # logits held at a time: 32 MiB in float32


class Options(NamedTuple):
    """The arguments of `gated_cross_entropy`, apart from the tensors that carry a gradient."""

    gates: Gates | None
    label_smoothing: float
    position_weight: Tensor | None  # (N,)
    unlikelihood: Unlikelihood | None
    ignore_index: int
    predict: bool
    z_loss: float = 0.0
    adversarial: float = 0.0  # ε
    softcap: float | None = None  # c


class Wanted(NamedTuple):
    """Which gradients are needed."""

    features: bool
    weight: bool
    bias: bool


class Outputs(NamedTuple):
    """Values at each position, zero at the ignored ones."""

    nll: Tensor  # (N,) −log P[i, y_i]
    losses: Tensor  # (N,) the summands of the loss
    unlikelihood: Tensor  # (N,) before its weight
    z_loss: Tensor  # (N,) before its weight
    adversarial: Tensor  # (N,) −log P'[i, y_i], of the perturbed logits
    prediction: Tensor | None  # (N,) int64


def working_dtype(given: Tensor) -> torch.dtype:
    """The dtype of values and gradients: float32, or float64 for a float64 tensor."""
    return torch.float64 if given.dtype == torch.float64 else torch.float32


def wants_gradient(tensor: Tensor | None) -> bool:
    """Will a backward pass ask for this gradient? Call it before `apply`: inside, it seems so under `no_grad` too."""
    return tensor is not None and tensor.requires_grad and torch.is_grad_enabled()


def scaled_gradients(ctx: Any, scale: Tensor, name: str) -> list[Tensor | None]:
    """The gradients that the forward pass formed, as pairs with the wanted dtype or None, times that of the loss.

    They are scaled in their own memory, so that a second call is a RuntimeError, which says the operation's `name`.
    """
    if ctx.gradients is None:
        raise RuntimeError(
            f"{name}: backward ran twice over the same loss, but its gradients are used up after the first; compute "
            "the loss again"
        )
    gradients, ctx.gradients = ctx.gradients, None
    if not _is_one(scale):
        for gradient, _ in filter(None, gradients):
            gradient.mul_(scale.to(gradient.dtype))
    return [None if pair is None else pair[0].to(pair[1]) for pair in gradients]


def _is_one(scale: Tensor) -> bool:
    """Whether to save a pass over the gradients. On a GPU never: to read the scale is to wait for the device."""
    return not scale.is_cuda and scale.item() == 1
