"""What the runs of a report are, and the settings that differ."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..checkpoints.fairseq_checkpoint import Checkpoint, options_of
from ..result import format_value

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


def summary(checkpoints: Iterable[Checkpoint]) -> list[list[str | None]]:
    """What each run is: rows with a title and a value for each."""
    titles = ("criterion", "architecture", "checkpoint", "updates", "best on validation")
    columns = []
    for checkpoint in checkpoints:
        options, extra = checkpoint.model_options, checkpoint.state.get("extra_state")
        best = extra.get("best") if isinstance(extra, dict) else None
        columns.append([
            str(checkpoint.criterion_options.get("_name")),
            str(options.get("arch") or options.get("_name")),
            checkpoint.path.name,
            format_value(checkpoint.updates, 0),
            format_value(float(best), 3) if isinstance(best, float | int) else None,
        ])  # fmt: skip
    return list(map(list, zip(titles, *columns, strict=True)))


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


def different_settings(states: Sequence[Mapping[str, Any]]) -> list[list[str | None]]:
    """The options of fairseq-train that differ between checkpoints, in fairseq's order, each with values or None."""
    settings = [settings_of(state) for state in states]
    names = dict.fromkeys(name for of_state in settings for name in of_state)
    rows = [[name, *(of_state.get(name) for of_state in settings)] for name in names]
    return [row for row in rows if len(set(row[1:])) > 1]
