"""The runs that a report compares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...errors import UserError
from ..checkpoints import criterion_options, open_model, options_of_model, task_options
from ..embeddings import INPUT_NAME, OUTPUT_NAMES
from ..naming import HUMAN, names_of, own_name
from ..runs import updates_of
from ..table import number

EMBEDDINGS = (INPUT_NAME, *OUTPUT_NAMES, "encoder.embed_tokens.weight")
NO_PARAMETERS = (".version", "._float_tensor")
"""How fairseq's names of what it saves beside parameters end."""
BEST, LAST, LOG = "checkpoint_best.pt", "checkpoint_last.pt", "train.log"


@dataclass(frozen=True)
class Run:
    """A folder that fairseq-train wrote.

    Args:
        name: unique among the runs.
        folder: its --save-dir.
        checkpoint: that its measures are of.
        log: what --log-format json --log-file wrote, if that is there.
    """

    name: str
    folder: Path
    checkpoint: Path
    log: Path | None

    @cached_property
    def state(self) -> dict[str, Any]:
        """The contents of the checkpoint, mapped from the file."""
        return open_model(self.checkpoint)

    @property
    def task(self) -> str:
        """Name of fairseq's task."""
        return str(task_options(self.state).get("_name"))


def find_runs(folders: Sequence[str], names: Sequence[str] | None) -> list[Run]:
    """The runs of some folders: of each its best checkpoint, or its last where it has no best.

    Raises:
        UserError: no such folder, or no checkpoint in it; runs of different tasks.
    """
    named = names_of(folders, names, own_name)
    if HUMAN in named:
        raise UserError(f"--name: found {HUMAN!r}, the row of the human text; give the run another name")
    runs = [_run(name, Path(folder)) for name, folder in zip(named, folders, strict=True)]
    for run in runs:
        if run.task != runs[0].task:
            expected = f"{runs[0].task}, that of {runs[0].folder}"
            raise UserError(f"{run.folder}: found the task {run.task}; expected {expected}")
    return runs


def _run(name: str, folder: Path) -> Run:
    if not folder.is_dir():
        raise UserError(f"{folder}: found no such folder; expected that of a run, with its checkpoints")
    checkpoint = next((path for path in (folder / BEST, folder / LAST) if path.is_file()), None)
    if checkpoint is None:
        raise UserError(f"{folder}: found neither {BEST} nor {LAST}; expected the --save-dir of fairseq-train")
    log = folder / LOG
    return Run(name, folder, checkpoint, log if log.is_file() else None)


def summary(runs: Sequence[Run]) -> tuple[list[str], list[list[str | None]]]:
    """Header and rows of a table with what each run is."""
    facts: dict[str, list[str | None]] = {
        "criterion": [str(criterion_options(run.state).get("_name")) for run in runs],
        "architecture": [_architecture(run) for run in runs],
        "parameters": [number(_parameters(run.state["model"]), 0) for run in runs],
        "checkpoint": [run.checkpoint.name for run in runs],
        "updates": [number(updates_of(run.state, run.checkpoint), 0) for run in runs],
        "best on validation": [_best(run.state) for run in runs],
    }
    return ["", *(run.name for run in runs)], [[fact, *values] for fact, values in facts.items()]


def _architecture(run: Run) -> str:
    options = options_of_model(run.checkpoint, run.state)
    return str(options.get("arch") or options.get("_name"))


def _parameters(model: dict[str, Tensor]) -> int:
    """The elements of all parameters, those of tied embeddings counted once."""
    tensors = {name: value for name, value in model.items() if isinstance(value, Tensor)}
    counted = {name: value for name, value in tensors.items() if not name.endswith(NO_PARAMETERS)}
    embeddings: list[Tensor] = []
    for name in EMBEDDINGS:
        value = counted.pop(name, None)
        if value is not None and not any(torch.equal(value, other) for other in embeddings):
            embeddings.append(value)
    return sum(value.numel() for value in (*counted.values(), *embeddings))


def _best(state: dict[str, Any]) -> str | None:
    """The best score on the validation split, and which score that is."""
    extra = state.get("extra_state")
    best = extra.get("best") if isinstance(extra, dict) else None
    if not isinstance(best, float | int):
        return None
    options = (state.get("cfg") or {}).get("checkpoint") or {}
    return f"{number(best, 3)} ({options.get('best_checkpoint_metric', 'loss')})"
