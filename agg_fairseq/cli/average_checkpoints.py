"""Averages checkpoints of a run into one, as Vaswani et al. (2017) did before they translated.

INPUT is the folder of a run, with --last, or the checkpoints themselves. In a folder, the last by epoch are
checkpoint<epoch>.pt, those by update checkpoint_<epoch>_<update>.pt, which --save-interval-updates leaves. The result
is an ordinary checkpoint, for fairseq-generate, fairseq-eval-lm, --finetune-from-model and the commands here.

Parameters are summed in float64 and saved in their own dtype; tied ones stay tied. All else is that of the newest
checkpoint, or of the first INPUT, but what only that one run could go on from: the optimiser's state, a moving
average of the weights (--store-ema) and the token counts of a criterion. The classes of a factorised softmax, and
whatever is not a floating-point number, must be the same in all; so must the architecture, the options that change a
model but not the shapes of its weights, and the task with its languages.

Memory: about twice the model, of however many checkpoints, where torch maps their files. Files from before torch
1.6 it cannot map, and reads whole, one at a time; of these, the weights of all are kept. Measured for five models of
76 MiB with the state of Adam: a peak of 88 to 168 MiB, and of 534 MiB for unmapped files.

    agg-fairseq average-checkpoints runs/agg --last 5 --output runs/agg/average.pt
    agg-fairseq average-checkpoints runs/agg --last 20 --by update --output runs/agg/average.pt
    agg-fairseq average-checkpoints a/checkpoint_best.pt b/checkpoint_best.pt --output average.pt
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..averaging import average_parameters
from ..checkpoint import Checkpoint
from ..errors import UserError
from ..files import check_writable, write_whole
from .checkpoints import check_finite, options_of_model, task_options
from .table import format_table, number

NAMES = {
    "epoch": (re.compile(r"checkpoint([0-9]+)\.pt"), "checkpoint<epoch>.pt"),
    "update": (re.compile(r"checkpoint_[0-9]+_([0-9]+)\.pt"), "checkpoint_<epoch>_<update>.pt"),
}
"""How fairseq names what it saves: the number to sort by, and as errors have it."""
MOVING_AVERAGE = ("ema", "ema_fp32_params")
"""What --store-ema adds to the `extra_state` of a checkpoint."""
MODEL_OPTIONS = (
    *("decoder_attention_heads", "encoder_attention_heads", "activation_fn"),
    *("decoder_normalize_before", "encoder_normalize_before", "no_scale_embedding", "no_token_positional_embeddings"),
)
"""What changes the function of a transformer, but neither the names nor the shapes of its parameters."""
TASK_OPTIONS = ("source_lang", "target_lang")
SHOWN_FILES = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("inputs", nargs="+", metavar="INPUT", help="the folder of a run, or checkpoints")
    parser.add_argument("--last", type=int, metavar="N", help="how many checkpoints of the folder: the last N")
    parser.add_argument("--by", choices=tuple(NAMES), help="which of them (default: epoch)")
    parser.add_argument("--output", required=True, metavar="FILE", help="checkpoint to write")


def run(arguments: argparse.Namespace) -> None:
    """Averages, writes the checkpoint and prints what went into it."""
    paths = _paths(arguments.inputs, arguments.last, arguments.by)
    _check_apart(paths, Path(arguments.output))
    check_writable(arguments.output)
    states = {str(path): _open(path) for path in paths}
    _check_settings(states)
    table = format_table(["", "updates", "validation loss"], [_row(path, state) for path, state in states.items()])
    averaged = _average({path: state["model"] for path, state in states.items()})
    checkpoint = {**states[str(paths[0])], "model": averaged}
    write_whole(arguments.output, lambda temporary: torch.save(checkpoint, temporary))
    print(f"{table}\n\n{arguments.output}: the mean of {len(paths)} checkpoints")


def _paths(inputs: Sequence[str], last: int | None, by: str | None) -> list[Path]:
    """The checkpoints to average, the one that settings are taken from first."""
    paths = [Path(path) for path in inputs]
    folder = next((path for path in paths if path.is_dir()), None)
    if folder is not None:
        if len(paths) > 1 or last is None:
            raise UserError(f"INPUT: found a folder, {folder}; expected it alone and with --last N, or checkpoints")
        return _last(folder, last, by or "epoch")
    if last is not None or by is not None:
        raise UserError(f"--last, --by: found no folder {paths[0]}; expected that of a run as the only INPUT")
    if len(paths) < 2:
        raise UserError(f"INPUT: found one checkpoint, {paths[0]}; expected at least two, or a folder and --last N")
    return paths


def _last(folder: Path, last: int, by: str) -> list[Path]:
    """The last checkpoints of a run, the newest first."""
    if last < 2:
        raise UserError(f"--last: found {last}; expected at least two checkpoints to average")
    pattern, form = NAMES[by]
    files = sorted(path.name for path in folder.glob("*.pt"))
    numbers = {name: int(match[1]) for name in files if (match := pattern.fullmatch(name))}
    if len(numbers) < last:
        found = f"{', '.join(files[:SHOWN_FILES])}{', …' if len(files) > SHOWN_FILES else ''}" or "no checkpoint"
        raise UserError(
            f"{folder}: found {len(numbers)} of the form {form} ({found}); expected {last}; ask for fewer, for "
            f"--by {' or '.join(other for other in NAMES if other != by)}, or train without deleting them"
        )
    return [folder / name for name in sorted(numbers, key=lambda name: -numbers[name])[:last]]


def _check_apart(paths: Sequence[Path], output: Path) -> None:
    """Sees that no checkpoint counts twice, and that none is written over."""
    seen: set[Path] = set()
    for path in paths:
        if path.resolve() in seen:
            raise UserError(f"INPUT: found {path} twice; expected each checkpoint once")
        seen.add(path.resolve())
    if output.resolve() in seen:
        raise UserError(f"--output: found {output}, which is averaged; name another file")


def _average(models: dict[str, Any]) -> dict[str, Tensor]:
    """The mean of models that are given by their paths."""
    try:
        averaged = average_parameters(models)
    except ValueError as error:
        raise UserError(str(error)) from error
    for path, parameters in models.items():
        check_finite(path, parameters)
    return averaged


def _open(path: Path) -> dict[str, Any]:
    """What is in a checkpoint, but what belongs to its own parameters alone, which is larger than these."""
    from ..criterions.task_hooks import STATE_KEY

    state = {**Checkpoint(path).state, "last_optimizer_state": None}
    if isinstance(state.get("extra_state"), dict):
        state["extra_state"] = {
            key: {name: part for name, part in value.items() if name != STATE_KEY} if isinstance(value, dict) else value
            for key, value in state["extra_state"].items()
            if key not in MOVING_AVERAGE
        }
    return state


def _check_settings(states: dict[str, dict[str, Any]]) -> None:
    """Sees that what was trained is one model, as far as its parameters do not tell."""
    (first_path, expected), *others = ((path, _settings(path, state)) for path, state in states.items())
    for path, found in others:
        for option in expected:
            if found[option] != expected[option] and None not in (found[option], expected[option]):
                raise UserError(
                    f"{path}: found {option} {found[option]}, but {expected[option]} in {first_path}; expected "
                    "checkpoints of one model"
                )


def _settings(path: str, state: dict[str, Any]) -> dict[str, str | None]:
    """The options that must be the same, as text; None for those that the checkpoint does not name."""
    try:
        model, task = options_of_model(path, state), task_options(state)
    except TypeError as error:  # where there are no options at all
        raise UserError(f"{path}: found no options of its model; expected a checkpoint of fairseq-train") from error
    settings = {
        "architecture": model.get("arch") or model.get("_name"),
        "task": task.get("_name"),
        **{option: model.get(option) for option in MODEL_OPTIONS},
        **{option: task.get(option) for option in TASK_OPTIONS},
    }
    return {option: None if value is None else str(value) for option, value in settings.items()}


def _row(path: str, state: dict[str, Any]) -> list[str | None]:
    history, extra = state.get("optimizer_history"), state.get("extra_state")
    last = history[-1] if isinstance(history, list) and history else None
    updates, loss = (
        _figure(part.get(name)) if isinstance(part, dict) else None
        for part, name in ((last, "num_updates"), (extra, "val_loss"))
    )
    return [path, number(updates, 0), number(loss, 3)]


def _figure(value: Any) -> float | None:
    """What a checkpoint says of itself, if it is a number; older ones have tensors."""
    try:
        return float(value) if isinstance(value, int | float | Tensor) else None
    except (ValueError, RuntimeError, OverflowError):  # of a tensor that is no number; of a huge one
        return None
