"""Going on from a checkpoint of another criterion: said in one line, before any training data is read."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..restoring import restored_checkpoint
from ..safe_loading import open_checkpoint

logger = logging.getLogger(__name__)


def check_same_criterion(cfg: Any, name: str) -> None:
    """Refuses to restore an optimiser that another criterion has trained, as fairseq will, but with the remedy.

    Args:
        cfg: options of a criterion: `save_dir`, `restore_file`, `reset_optimizer`.
        name: class name of the criterion, as fairseq saves it.

    Raises:
        ValueError: the checkpoint that fairseq will restore is of another criterion, and keeps its optimiser.
    """
    if cfg.reset_optimizer:
        return
    path = restored_checkpoint(cfg)
    found = None if path is None else _criterion_of(path)
    if found not in (None, name):
        raise ValueError(
            f"{path}: found a checkpoint trained with {found}, expected {name}; add --reset-optimizer (and "
            "--reset-dataloader --reset-meters --reset-lr-scheduler to start its schedule afresh), or choose another "
            "--save-dir"
        )


def _criterion_of(path: Path) -> str | None:
    """The criterion of the last optimiser in a checkpoint; None where there is none, or its state was not saved."""
    try:
        state = open_checkpoint(path)
    except UserError as error:  # fairseq opens it next, and knows more formats
        logger.warning(f"could not tell which criterion trained the checkpoint: {error}")
        return None
    if state.get("last_optimizer_state") is None or not state.get("optimizer_history"):
        return None
    return state["optimizer_history"][-1].get("criterion_name")
