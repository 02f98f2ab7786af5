"""The mean of checkpoints of one model."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from .. import __version__
from ..errors import UserError
from ..files import check_writable, write_whole
from ..result import Column, Result
from .fairseq_checkpoint import STATE_KEY, Checkpoint
from .output_embedding import check_finite

NAMES = {
    "epoch": (re.compile(r"checkpoint([0-9]+)\.pt"), "checkpoint<epoch>.pt"),
    "update": (re.compile(r"checkpoint_[0-9]+_([0-9]+)\.pt"), "checkpoint_<epoch>_<update>.pt"),
}
"""How fairseq names what it saves: as a pattern of which the group is the number to sort by, and as errors say it."""
MODEL_OPTIONS = (
    *("decoder_attention_heads", "encoder_attention_heads", "activation_fn"),
    *("decoder_normalize_before", "encoder_normalize_before", "no_scale_embedding", "no_token_positional_embeddings"),
)
"""Options that change the function of a transformer, but neither the names nor the shapes of its parameters."""
TASK_OPTIONS = ("source_lang", "target_lang")
SHOWN_FILES = 20
WITHOUT_MEAN = ("class_of_token", "counts")
"""Entries of the output layers of this package that are saved as floating-point numbers and are no weights: the class
of each token, and the counts that a log-unigram bias starts from."""
DTYPES = (
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
)
"""What can be summed, or compared, in float64."""


def average_checkpoints(checkpoints: Mapping[str, Checkpoint], output: str | Path) -> Result:
    """Writes the mean of checkpoints of one model as a checkpoint.

    All but the parameters is that of the first checkpoint, except what only its own run could go on from: the state of
    the optimizer, a moving average of the weights, and the token counts of a criterion.

    Args:
        checkpoints: at least one, by the names of their rows; opened with `training_state=False`, or their optimizers'
            states stay in memory.
        output: the file to write.

    Returns:
        Result: a row per checkpoint, with its updates and its validation loss (in bits, as fairseq reports it), None
        where it does not say. Details: `checkpoints`, for each `name`, `path`, `updates` and `validation_loss`.

    Raises:
        UserError: a checkpoint is given twice, or is `output`, or that cannot be written; the checkpoints are of
            different models, as far as their parameters, architectures, tasks and languages tell; or one is diverged.

    Reference: Vaswani et al. (2017), Sec. 6.1.
    """
    check_paths([checkpoint.path for checkpoint in checkpoints.values()], output)
    settings: dict[str, dict[str, str | None]] = {}
    for checkpoint in checkpoints.values():
        model, task = checkpoint.model_options, checkpoint.task_options
        found = {
            "architecture": model.get("arch") or model.get("_name"),
            "task": task.get("_name"),
            **{option: model.get(option) for option in MODEL_OPTIONS},
            **{option: task.get(option) for option in TASK_OPTIONS},
        }
        settings[str(checkpoint)] = {key: None if value is None else str(value) for key, value in found.items()}
    (first_path, expected), *others = settings.items()
    for path, found in others:
        for option, value in expected.items():
            if found[option] != value and None not in (found[option], value):
                raise UserError(
                    f"{path}: found {option} {found[option]}, but {value} in {first_path}; expected checkpoints of one "
                    "model"
                )

    models = {str(checkpoint): checkpoint.parameters for checkpoint in checkpoints.values()}
    try:
        averaged = average_parameters(models)
    except ValueError as error:
        raise UserError(str(error)) from error
    for path, parameters in models.items():
        check_finite(path, parameters)
    state = {**_without_training_state(next(iter(checkpoints.values())).state), "model": averaged}
    write_whole(output, lambda temporary: torch.save(state, temporary))

    described = []
    for name, checkpoint in checkpoints.items():
        history, extra = checkpoint.state.get("optimizer_history"), checkpoint.state.get("extra_state")
        last = history[-1] if isinstance(history, list) and history else None
        updates = _number(last.get("num_updates")) if isinstance(last, dict) else None
        loss = _number(extra.get("val_loss")) if isinstance(extra, dict) else None
        described.append({"name": name, "path": str(checkpoint), "updates": updates, "validation_loss": loss})
    return Result(
        columns=[Column("updates", digits=0), Column("validation loss", "bits", 3)],
        rows={one["name"]: [one["updates"], one["validation_loss"]] for one in described},
        signature=f"checkpoints:{len(checkpoints)}|mean:float64|version:{__version__}",
        details={"checkpoints": described},
    )


def last_checkpoints(folder: str | Path, last: int, by: str = "epoch") -> list[Path]:
    """The last checkpoints in the folder of a run, the newest first.

    Args:
        folder: the --save-dir of fairseq-train.
        last: how many, at least 2.
        by: "epoch", checkpoint<epoch>.pt; or "update", checkpoint_<epoch>_<update>.pt.

    Raises:
        UserError: there are fewer.
    """
    if last < 2:
        raise UserError(f"--last: found {last}; expected at least two checkpoints to average")
    pattern, form = NAMES[by]
    files = sorted(path.name for path in Path(folder).glob("*.pt"))
    numbers = {name: int(match[1]) for name in files if (match := pattern.fullmatch(name))}
    if len(numbers) < last:
        found = f"{', '.join(files[:SHOWN_FILES])}{', …' if len(files) > SHOWN_FILES else ''}" or "no checkpoint"
        raise UserError(
            f"{folder}: found {len(numbers)} of the form {form} ({found}); expected {last}; ask for fewer, for "
            f"--by {' or '.join(other for other in NAMES if other != by)}, or train without deleting them"
        )
    return [Path(folder) / name for name in sorted(numbers, key=lambda name: -numbers[name])[:last]]


def check_paths(paths: Sequence[str | Path], output: str | Path) -> None:
    """Checks, before checkpoints are opened, that each is given once and that their mean can be written.

    Raises:
        UserError: a checkpoint is given twice, by whatever links; `output` is one of them, or cannot be written.
    """
    seen: set[Path] = set()
    for path in map(Path, paths):
        if path.resolve() in seen:
            raise UserError(f"INPUT: found {path} twice; expected each checkpoint once")
        seen.add(path.resolve())
    if Path(output).resolve() in seen:
        raise UserError(f"--output: found {output}, which is averaged; name another file")
    check_writable(output)


def average_parameters(models: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of each parameter over checkpoints of one model.

    Summed in float64, one parameter after the other: beside the tensors that are given, which may be mapped from
    files, only the result and one parameter in float64 take memory. Parameters that share memory in all models do so in
    the result too. What is no floating-point number, and what is listed in `WITHOUT_MEAN`, must be the same in all.

    Args:
        models: the parameters by name, of each model by the name that errors call it; the first gives the dtypes.

    Returns:
        New tensors, in the order and the dtypes of the first model's.

    Raises:
        ValueError: there are no models; one is no model, or differs from the first in the names, the shapes or what
            must be the same; or a tensor is sparse, quantized, without values, complex or of 8-bit floats.

    Reference: Vaswani et al. (2017), Sec. 6.1.
    """
    if not models:
        raise ValueError("expected the parameters of at least one model, got none")
    (first_label, first), *others = models.items()
    _check_tensors(first, first_label)
    remedy = "expected checkpoints of one model"
    for label, parameters in others:
        _check_tensors(parameters, label)
        for name, value in first.items():
            if name not in parameters:
                raise ValueError(f"{label}: found no {name}, which {first_label} has; {remedy}")
            shape, expected = tuple(parameters[name].shape), tuple(value.shape)
            if shape != expected:
                raise ValueError(f"{label}: found {name} of shape {shape}, but {expected} in {first_label}; {remedy}")
        added = next((name for name in parameters if name not in first), None)
        if added is not None:
            raise ValueError(f"{label}: found {added}, which {first_label} does not have; {remedy}")
    found: dict[Any, Tensor] = {}
    averaged = {}
    for name in tqdm(first, desc="averaging", unit="parameter", disable=None, leave=False):
        tensors = {label: parameters[name] for label, parameters in models.items()}
        # Parameters are tied if they lie in the same memory, in the same way, in every model.
        place = tuple((one.data_ptr(), one.shape, one.stride(), one.dtype) for one in tensors.values())
        if place not in found:
            if first[name].is_floating_point() and name.split(".")[-1] not in WITHOUT_MEAN:
                total = torch.zeros_like(first[name], dtype=torch.float64)
                for tensor in tensors.values():
                    total += tensor
                found[place] = total.div_(len(tensors)).to(first[name].dtype)
            else:
                found[place] = _common_value(name, tensors)
        averaged[name] = found[place]
    return averaged


def _common_value(name: str, tensors: Mapping[str, Tensor]) -> Tensor:
    """A copy of a tensor that must be the same in all models."""
    (first_label, first), *others = tensors.items()
    for label, tensor in others:
        if not torch.equal(tensor.double(), first.double()):
            raise ValueError(
                f"{label}: found another {name} than in {first_label}; expected checkpoints of one run: what is no "
                "weight has no mean"
            )
    return first.clone()


def _check_tensors(parameters: Any, label: str) -> None:
    """Checks that parameters are tensors by name, and that each can be summed."""
    if not isinstance(parameters, Mapping) or not parameters:
        raise ValueError(f"{label}: found no parameters; expected those of a model, by name")
    for name, value in parameters.items():
        if not isinstance(name, str):
            raise ValueError(f"{label}: found {name!r} as the name of a parameter; expected a string")
        if not isinstance(value, Tensor):
            raise ValueError(f"{label}: found a {type(value).__name__} as {name}; expected a tensor")
        if value.is_nested or value.layout != torch.strided:
            odd = "that is sparse or nested"
        elif value.is_meta:
            odd = "without values, on the device meta"
        elif value.dtype not in DTYPES:
            odd = f"of {value.dtype}"
        else:
            continue
        raise ValueError(f"{label}: found {name} {odd}; expected a dense tensor of float16 to float64 or integers")


def _without_training_state(state: Mapping[str, Any]) -> dict[str, Any]:
    """A checkpoint without what only its own run could go on from, beside what `Checkpoint` drops."""
    extra = state.get("extra_state")
    if not isinstance(extra, dict):
        return dict(state)
    kept = {
        key: {name: part for name, part in value.items() if name != STATE_KEY} if isinstance(value, dict) else value
        for key, value in extra.items()
    }
    return {**state, "extra_state": kept}


def _number(value: Any) -> float | None:
    """What a checkpoint says of itself, if it is a number; older ones have tensors."""
    try:
        return float(value) if isinstance(value, int | float | Tensor) else None
    except (ValueError, RuntimeError, OverflowError):  # a tensor that is no number; an int beyond a float
        return None
