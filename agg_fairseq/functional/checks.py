"""Checks of the arguments of the losses. Messages say what was expected and what was found."""

import math

import torch
from torch import Tensor

from .gates import Gates


def check_arguments(
    name: str, features: Tensor, weight: Tensor, target: Tensor, label_smoothing: float, ignore_index: int
) -> None:
    """Raises ValueError or TypeError if H (..., D), W (V, D), y (...) and ε do not fit; `name` is the operation's."""
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
    if not 0 <= label_smoothing < 1:
        raise ValueError(f"{name}: expected label_smoothing in [0, 1), got {label_smoothing}")
    check_targets(name, target, weight.size(0), ignore_index)


def check_targets(name: str, target: Tensor, vocabulary: int, ignore_index: int) -> None:
    """Raises ValueError if a target is neither in [0, V) nor ignored; a GPU reports it later, without waiting."""
    good = (target == ignore_index) | ((target >= 0) & (target < vocabulary))
    if target.is_cuda:
        torch._assert_async(good.all())
    elif not good.all():
        raise ValueError(
            f"{name}: expected targets in [0, {vocabulary}) or {ignore_index} (ignored), got {int(target[~good][0])}"
        )


def check_positions_and_tokens(
    name: str, target: Tensor, vocabulary: int, position_weight: Tensor | None, bias: Tensor | None, gates: Gates | None
) -> None:
    """Raises ValueError if `position_weight` is not shaped like `target`, or bias or gates do not have V entries."""
    if position_weight is not None and position_weight.shape != target.shape:
        raise ValueError(
            f"{name}: expected position_weight of shape {tuple(target.shape)}, got {tuple(position_weight.shape)}"
        )
    vectors = {"bias": bias}
    if gates is not None:
        vectors |= {f"gates.{field}": vector for field, vector in vars(gates).items()}
    for field, vector in vectors.items():
        if vector is not None and vector.shape != (vocabulary,):
            raise ValueError(f"{name}: expected {field} of shape ({vocabulary},), got {tuple(vector.shape)}")


def check_open_interval(name: str, value: float) -> float:
    """Returns `value`; raises ValueError if it is not in (0, 1)."""
    if not 0 < value < 1:
        raise ValueError(f"expected {name} between 0 and 1, both excluded, got {value}")
    return value


def check_weight(name: str, value: float) -> float:
    """Returns `value`; raises ValueError if it is negative or not finite."""
    if not 0 <= value < math.inf:
        raise ValueError(f"expected {name} of at least 0, got {value}")
    return value
