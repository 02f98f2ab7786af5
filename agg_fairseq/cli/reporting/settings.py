"""The settings in which runs differ, by the names of the options of fairseq-train."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

SECTIONS = (
    "common",
    "dataset",
    "optimization",
    "checkpoint",
    "distributed_training",
    "ema",
    "task",
    "optimizer",
    "lr_scheduler",
    "criterion",
    "model",
)
"""Of fairseq's configuration, those that training depends on. A setting is shown where it comes first."""

NAMES = {"model": "arch"}
"""The option that chooses a section's kind, where it does not bear the section's name."""
FROM_SCRATCH = ("restore_file", "checkpoint_last.pt")
"""The default, a resume of the run itself; another file is where the training started."""

NOT_SETTINGS = frozenset(
    "save_dir log_file tensorboard_logdir user_dir wandb_project distributed_init_method distributed_port "
    "device_id distributed_rank no_progress_bar log_format log_interval num_workers no_epoch_checkpoints".split()
)
"""Where things are and what is printed: no two runs are the same there, and no number depends on it."""

TERMS = frozenset(("ul_alpha", "cosreg_gamma"))
"""Weights of the terms that every criterion of this package takes. Without the option, or with 0, there is no term."""


def different_settings(states: Sequence[dict[str, Any]]) -> list[tuple[str, list[str | None]]]:
    """The options that are not the same in all checkpoints.

    Args:
        states: the contents of checkpoints.

    Returns:
        The name of each option, in fairseq's order, and its value in each checkpoint; None where it has no such option.
    """
    flat = [_flat(state) for state in states]
    names = dict.fromkeys(name for settings in flat for name in settings)
    rows = [(name, [settings.get(name) for settings in flat]) for name in names]
    return [(name, values) for name, values in rows if len(set(values)) > 1]


def _flat(state: dict[str, Any]) -> dict[str, str]:
    configuration = state.get("cfg") or {"model": state["args"]}
    settings: dict[str, str] = {}
    for section in SECTIONS:
        options = configuration.get(section)
        options = vars(options) if isinstance(options, argparse.Namespace) else options
        if isinstance(options, dict):
            for key, value in options.items():
                name = NAMES.get(section, section) if key == "_name" else key
                if name in TERMS and not value:
                    continue
                if name not in NOT_SETTINGS and (name, value) != FROM_SCRATCH:
                    settings.setdefault(f"--{name.replace('_', '-')}", _said(value))
    return settings


def _said(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
