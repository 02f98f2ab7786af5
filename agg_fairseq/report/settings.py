"""The settings of runs, and where they differ."""

from collections.abc import Mapping, Sequence
from itertools import chain

from ..checkpoints import Checkpoint
from ..errors import flag

NOT_SETTINGS = frozenset(
    "save_dir log_file handlers tensorboard_logdir user_dir wandb_project distributed_init_method "
    "distributed_port device_id distributed_rank no_progress_bar log_format log_interval "
    "num_workers no_epoch_checkpoints".split()
)
"""Options that say where files are and what is printed, and affect no number."""
OFF_VALUES = frozenset(("None", "0", "0.0", "False", ""))
"""Values of an option that is switched off."""


def training_settings(checkpoint: Checkpoint) -> dict[str, str]:
    """The options of fairseq-train that a checkpoint was trained with and that are on, in fairseq's
    order; one of several sections of the configuration has its value of the first."""
    settings = {}
    for section in checkpoint.state.get("cfg") or ["model"]:
        for key, value in checkpoint.options(section).items():
            name = key
            if key == "_name":
                name = "arch" if section == "model" else section
            text = " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
            if name not in NOT_SETTINGS and text not in OFF_VALUES:
                settings.setdefault(flag(name), text)
    return settings


def different_settings(checkpoints: Sequence[Checkpoint]) -> list[list[str | None]]:
    """The options that differ between checkpoints, in fairseq's order, each with values or None."""
    settings = list(map(training_settings, checkpoints))
    rows = []
    for name in dict.fromkeys(chain(*settings)):
        values = [of_one.get(name) for of_one in settings]
        if len(set(values)) > 1:
            rows.append([name, *values])
    return rows


def models_of_runs(checkpoints: Mapping[str, Checkpoint]) -> dict[str, dict[str, str]]:
    """Runs by the title of a model and the seed: those that differ by it alone are one model."""
    alike = {}  # the runs by seed of the same other settings
    for name, checkpoint in checkpoints.items():
        settings = training_settings(checkpoint)
        seed = settings.pop("--seed", "")
        # trained twice with the same seed: another model
        if seed in alike.get(frozenset(settings.items()), {}):
            settings["run"] = name
        alike.setdefault(frozenset(settings.items()), {})[seed] = name
    models = {}
    for by_seed in alike.values():
        title = next(iter(by_seed.values()))
        if len(by_seed) > 1:
            title += f" ({len(by_seed)} seeds)"
        models[title] = by_seed
    return models
