"""The mean of checkpoints of one model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

CLASSES = "class_of_token"
"""The entry of a factorised softmax that holds the class of each token, as float32, which have no mean."""
DTYPES = (
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
)
"""What can be summed, or compared, in float64."""


def average_parameters(models: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of each parameter over checkpoints of one model.

    Summed in float64, one parameter after the other: beside the tensors that are given, which may be mapped from
    files, the result and one parameter in float64 are all that takes memory. What shares memory in all models does so
    in the result too. What is no floating-point number, and the classes of a factorised softmax, must be the same in
    all.

    Args:
        models: the parameters by name, of each model by the name that errors call it; the first gives the dtypes.

    Returns:
        New tensors, in the order and the dtypes of the first model's.

    Raises:
        ValueError: there are no models, or one is no model or another than the first: by the names, the shapes or
            what must be the same; or a tensor is sparse, quantised, without values, complex or of 8-bit floats.

    Reference: Vaswani et al. (2017), Sec. 6.1.
    """
    if not models:
        raise ValueError("expected the parameters of at least one model, got none")
    (first_label, first), *others = models.items()
    _check_tensors(first, first_label)
    for label, parameters in others:
        _check_tensors(parameters, label)
        _check_alike(parameters, label, first, first_label)
    found: dict[Any, Tensor] = {}
    averaged = {}
    for name in tqdm(first, desc="averaging", unit="parameter", disable=None, leave=False):
        tensors = {label: parameters[name] for label, parameters in models.items()}
        place = tuple(map(_place, tensors.values()))
        if place not in found:
            has_mean = first[name].is_floating_point() and name.split(".")[-1] != CLASSES
            found[place] = _mean(list(tensors.values())) if has_mean else _same(name, tensors)
        averaged[name] = found[place]
    return averaged


def _mean(tensors: Sequence[Tensor]) -> Tensor:
    total = tensors[0].to(torch.float64, copy=True)
    for tensor in tensors[1:]:
        total += tensor
    return total.div_(len(tensors)).to(tensors[0].dtype)


def _same(name: str, tensors: Mapping[str, Tensor]) -> Tensor:
    """A copy of what is the same in all models."""
    (first_label, first), *others = tensors.items()
    for label, tensor in others:
        if not torch.equal(tensor.double(), first.double()):
            raise ValueError(
                f"{label}: found another {name} than in {first_label}; expected checkpoints of one run: what is no "
                "weight has no mean"
            )
    return first.clone()


def _place(tensor: Tensor) -> tuple[Any, ...]:
    """Where a tensor lies in memory, and how."""
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype


def _check_tensors(parameters: Any, label: str) -> None:
    if not isinstance(parameters, Mapping) or not parameters:
        raise ValueError(f"{label}: found no parameters; expected those of a model, by name")
    for name, value in parameters.items():
        if not isinstance(name, str):
            raise ValueError(f"{label}: found {name!r} as the name of a parameter; expected a string")
        if not isinstance(value, Tensor):
            raise ValueError(f"{label}: found a {type(value).__name__} as {name}; expected a tensor")
        odd = _oddity(value)
        if odd is not None:
            raise ValueError(f"{label}: found {name} {odd}; expected a dense tensor of float16 to float64 or integers")


def _oddity(tensor: Tensor) -> str | None:
    """What keeps a tensor from being summed, if something does."""
    if tensor.is_nested or tensor.layout != torch.strided:
        return "that is sparse or nested"
    if tensor.is_meta:
        return "without values, on the device meta"
    return None if tensor.dtype in DTYPES else f"of {tensor.dtype}"


def _check_alike(parameters: Mapping[str, Tensor], label: str, first: Mapping[str, Tensor], first_label: str) -> None:
    """Sees that two models have parameters of the same names and shapes."""
    remedy = "expected checkpoints of one model"
    for name, value in first.items():
        if name not in parameters:
            raise ValueError(f"{label}: found no {name}, which {first_label} has; {remedy}")
        if parameters[name].shape != value.shape:
            raise ValueError(
                f"{label}: found {name} of shape {tuple(parameters[name].shape)}, but {tuple(value.shape)} in "
                f"{first_label}; {remedy}"
            )
    added = next((name for name in parameters if name not in first), None)
    if added is not None:
        raise ValueError(f"{label}: found {added}, which {first_label} does not have; {remedy}")
