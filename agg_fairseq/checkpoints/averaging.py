"""The mean of checkpoints of one model."""

import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from ..errors import UserError
from ..files import atomic_write, check_writable
from ..result import Result
from .fairseq_checkpoint import STATE_KEY, Checkpoint
from .output_embedding import check_finite

logger = logging.getLogger(__name__)

CHECKPOINT_NAMES = {
    "epoch": re.compile(r"checkpoint([0-9]+)\.pt"),
    "update": re.compile(r"checkpoint_[0-9]+_([0-9]+)\.pt"),
}
"""How fairseq names what it saves; the group is the number to sort by."""
WITHOUT_MEAN = ("class_of_token", "counts")  # floating-point entries of our output layers


def average_checkpoints(
    inputs: Sequence[str | Path],
    output: str | Path,
    *,
    last: int = 5,
    by: str = "epoch",
    force: bool = False,
) -> Result:
    """Writes the mean of checkpoints of one model as a checkpoint, with all else of the first one
    but what only its own run could go on from, such as the token counts of a criterion.

    Args:
        inputs: the folder of a run, or checkpoints.
        last: average the last N checkpoints of the folder, or with a warning those that are there.
        by: which checkpoints of the folder are used.
    """
    paths = list(map(Path, inputs))
    if len(paths) == 1 and paths[0].is_dir():
        paths = last_checkpoints(paths[0], last, by)
    elif len(set(paths)) < max(len(paths), 2) or any(path.is_dir() for path in paths):
        raise UserError(
            "INPUT: expected the folder of a run, or two checkpoints or more, each once"
        )
    check_writable(output, *paths, replace=force)
    checkpoints = list(map(Checkpoint, paths))
    models, rows = {}, {}
    for model in checkpoints:
        models[str(model)] = model.parameters
        rows[str(model)] = {"path": str(model), "updates": model.updates}
    state = checkpoints[0].model_state()
    state["model"] = average_parameters(models)
    if not all(mean.isfinite().all() for mean in state["model"].values()):
        for path, parameters in models.items():
            check_finite(path, parameters)
    for key, value in state["extra_state"].items():
        if isinstance(value, dict):  # such as the task's part, with the state of a criterion
            state["extra_state"][key] = {**value}
            state["extra_state"][key].pop(STATE_KEY, None)
    atomic_write(output, lambda temporary: torch.save(state, temporary))
    return Result(rows, {"updates": [""]}, {"checkpoints": len(paths), "mean": "float64"})


def last_checkpoints(folder: Path, last: int, by: str) -> list[Path]:
    """The last checkpoints in the folder of a run, the newest first; `by` is a key of `CHECKPOINT_NAMES`."""
    numbers = {}
    for path in folder.glob("*.pt"):
        if match := CHECKPOINT_NAMES[by].fullmatch(path.name):
            numbers[path] = int(match[1])
    if not numbers:
        raise UserError(
            f"{folder}: found no checkpoints by {by}; try another --by, or train with "
            "--save-interval-updates, or without --no-epoch-checkpoints"
        )
    if len(numbers) < last:
        logger.warning(f"{folder}: found {len(numbers)} checkpoints by {by} of the last {last}")
    return sorted(numbers, key=numbers.__getitem__, reverse=True)[:last]


def average_parameters(models: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of each parameter over checkpoints of one model, summed in float64, in the order and
    the dtypes of the first one.

    UserError unless names, shapes, integers and the entries `WITHOUT_MEAN` are the same in all.

    Reference: Vaswani et al. (2017), Sec. 6.1.
    """
    first_label, first = next(iter(models.items()))
    expected = {(name, value.shape) for name, value in first.items()}
    for label, model in models.items():
        found = {(name, value.shape) for name, value in model.items()}
        if others := sorted(found ^ expected):
            name, shape = others[0]
            raise UserError(
                f"{label}: found other parameters than in {first_label}, such as "
                f"{name} {tuple(shape)}"
            )
    averaged = {}
    for name, value in first.items():
        if value.is_floating_point() and name.split(".")[-1] not in WITHOUT_MEAN:
            total = torch.zeros_like(value, dtype=torch.float64)
            for model in models.values():
                total += model[name]
            averaged[name] = total.div_(len(models)).to(value.dtype)
            continue
        for label, model in models.items():
            if not torch.equal(model[name].double(), value.double()):
                raise UserError(f"{label}: found another {name} than in {first_label}")
        averaged[name] = value
    return averaged
