"""The runs that a report compares: their checkpoints, opened once, their logs, and the settings that differ."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..checkpoints.fairseq_checkpoint import Checkpoint, check_run_folder, checkpoints_of_run, options_of
from ..errors import UserError
from ..evaluation.fairseq_logs import read_entries
from ..evaluation.inputs import check_row_names
from ..names import HUMAN
from ..result import format_value

LOG = "train.log"
NO_PARAMETERS = (".version", "._float_tensor", ".class_of_token", ".output_projection.counts")
"""How the names end of what fairseq, and the output layers of this package, save among the parameters and is none."""

SECTIONS = (
    *("common", "dataset", "optimization", "checkpoint", "distributed_training", "ema"),
    *("task", "optimizer", "lr_scheduler", "criterion", "model"),
)
"""The sections of fairseq's configuration that training depends on. An option that is in several of them is shown as it
is in the first."""
NOT_SETTINGS = frozenset(
    "save_dir log_file tensorboard_logdir user_dir wandb_project distributed_init_method distributed_port "
    "device_id distributed_rank no_progress_bar log_format log_interval num_workers no_epoch_checkpoints".split()
)
"""Options that say where files are and what is printed: they differ between any two runs, and affect no number."""
OFF = frozenset(("None", "0", "0.0", "False", ""))
"""Values of an option that is switched off, which is as if the run did not have it."""


@dataclass(frozen=True)
class Run:
    """A folder that fairseq-train wrote. Each of its checkpoints is opened once."""

    name: str  # unique among the runs of a report
    folder: Path  # the --save-dir
    checkpoint: Checkpoint  # the one that is measured: the best, or the last if there is no best

    @cached_property
    def checkpoints(self) -> list[Checkpoint]:
        """All checkpoints of the folder in the order of their updates, as of `checkpoints_of_run`."""
        return checkpoints_of_run(self.folder, opened=[self.checkpoint])

    @property
    def log(self) -> Path:
        """What --log-format json --log-file wrote, where it is expected; it need not be there."""
        return self.folder / LOG

    def has_logged(self, tag: str, name: str) -> bool:
        """Has the log, if there is one, a number of this name in the lines of this tag?"""
        return self.log.is_file() and any(name in entry for entry in read_entries(self.log).get(tag, ()))


def open_runs(folders: Mapping[str, str | Path]) -> list[Run]:
    """Opens the runs that a report compares, which have to be of the same task, in folders by their names."""
    check_row_names(folders, HUMAN)
    runs = []
    for name, folder in folders.items():
        check_run_folder(Path(folder))
        runs.append(Run(name, Path(folder), Checkpoint(folder, training_state=False)))
    tasks = [run.checkpoint.task_options.get("_name") for run in runs]
    for run, task in zip(runs, tasks, strict=True):
        if task != tasks[0]:
            raise UserError(f"{run.folder}: found the task {task}; expected {tasks[0]}, that of {runs[0].folder}")
    return runs


def summary(runs: Sequence[Run]) -> list[list[str | None]]:
    """What each run is: rows with a title and a value for each run."""
    titles = ("criterion", "architecture", "parameters", "checkpoint", "updates", "best on validation")
    columns = []
    for checkpoint in (run.checkpoint for run in runs):
        model, extra = checkpoint.model_options, checkpoint.state.get("extra_state")
        best = extra.get("best") if isinstance(extra, dict) else None
        if isinstance(best, float | int):
            metric = options_of(checkpoint.state, "checkpoint").get("best_checkpoint_metric", "loss")
            best = f"{format_value(float(best), 3)} ({metric})"
        criterion, arch = checkpoint.criterion_options.get("_name"), model.get("arch") or model.get("_name")
        parameters = format_value(count_parameters(checkpoint.parameters), 0)
        updates = format_value(checkpoint.updates, 0)
        columns.append([str(criterion), str(arch), parameters, checkpoint.path.name, updates, best])
    return list(map(list, zip(titles, *columns, strict=True)))


def count_parameters(parameters: Mapping[str, Tensor]) -> int:
    """The number of elements of all parameters; a tied embedding, which fairseq saves twice, counts once."""
    total, embeddings = 0, []
    for name, value in parameters.items():
        if name.endswith(NO_PARAMETERS):
            continue
        if value.dim() == 2 and ("embed" in name or "output_projection" in name):
            if any(torch.equal(value, other) for other in embeddings):
                continue
            embeddings.append(value)
        total += value.numel()
    return total


def settings_of(state: Mapping[str, Any]) -> dict[str, str]:
    """The options of fairseq-train that a checkpoint was trained with, in fairseq's order, and their values.

    Options that are switched off are left out, and the threshold of AGG if it has the share of the vocabulary instead.
    """
    settings: dict[str, str] = {}
    for section in SECTIONS:
        options = options_of(state, section)
        for key, value in options.items():
            name = key if key != "_name" else "arch" if section == "model" else section
            is_default = (name, value) == ("restore_file", "checkpoint_last.pt")  # the run goes on from itself
            is_ignored = name == "agg_alpha" and options.get("agg_rare_fraction") is not None
            text = " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
            if name in NOT_SETTINGS or is_default or is_ignored or text in OFF:
                continue
            settings.setdefault(f"--{name.replace('_', '-')}", text)
    return settings


def different_settings(states: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[str | None]]]:
    """The options of fairseq-train that differ between checkpoints, in fairseq's order, each with values or None."""
    settings = [settings_of(state) for state in states]
    names = dict.fromkeys(name for of_state in settings for name in of_state)
    rows = [(name, [of_state.get(name) for of_state in settings]) for name in names]
    return [(name, values) for name, values in rows if len(set(values)) > 1]
