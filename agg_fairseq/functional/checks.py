"""What every cross-entropy here asks of its arguments."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def check_arguments(
    name: str, features: Tensor, weight: Tensor, target: Tensor, label_smoothing: float, ignore_index: int
) -> None:
    """Sees that H (..., D), W (V, D), y (...) and ε fit together.

    Args:
        name: of the operation that asks, for the error's text.
        features, weight, target, label_smoothing, ignore_index: as `gated_cross_entropy` takes them.

    Raises:
        ValueError: a shape, a range or a size does not fit.
        TypeError: `target` is not int64, or `features` not floating point.
    """
    if not features.is_floating_point():
        raise TypeError(f"{name}: expected floating-point features, got {features.dtype}")
    if target.dtype != torch.int64:
        raise TypeError(f"{name}: expected target of dtype torch.int64, got {target.dtype}")
    if weight.dim() != 2 or weight.size(1) != features.size(-1):
        raise ValueError(
            f"{name}: expected weight of shape (V, {features.size(-1)}) for features of shape "
            f"{tuple(features.shape)}, got {tuple(weight.shape)}"
        )
    if target.shape != features.shape[:-1]:
        raise ValueError(f"{name}: expected target of shape {tuple(features.shape[:-1])}, got {tuple(target.shape)}")
    if not 0 <= label_smoothing < 1 or math.isnan(label_smoothing):
        raise ValueError(f"{name}: expected label_smoothing in [0, 1), got {label_smoothing}")
    if label_smoothing and weight.size(0) == 1:
        raise ValueError(f"{name}: label_smoothing needs at least 2 tokens, got 1")
    _check_range(name, target, weight.size(0), ignore_index)


def _check_range(name: str, target: Tensor, vocabulary: int, ignore_index: int) -> None:
    """A GPU checks by itself, and fails later: to ask it would be to wait for it."""
    good = (target == ignore_index) | ((target >= 0) & (target < vocabulary))
    if target.is_cuda:
        torch._assert_async(good.all())
    elif not good.all():
        raise ValueError(
            f"{name}: expected targets in [0, {vocabulary}) or {ignore_index} (ignored), got {int(target[~good][0])}"
        )
