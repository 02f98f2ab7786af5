"""What a training goes on from: looked at, and said in one line, before any training data is read.

A criterion is built too early to look: fairseq-validate builds that of a checkpoint too, with the options of the
training that it came from, and restores nothing. Only fairseq-train calls `checkpoint_utils.load_checkpoint`.
"""

from __future__ import annotations

import functools
import logging
from pathlib import Path
from typing import Any

from fairseq import checkpoint_utils

from ..errors import UserError
from ..restoring import restored_checkpoint
from ..safe_loading import UnreadableCheckpoint, open_checkpoint
from .task_hooks import STATE_KEY

logger = logging.getLogger(__name__)


def listen_to_restoring() -> None:
    """Has fairseq call `before_restoring()` of the criterion that it trains, where that has one, before it restores."""
    original = checkpoint_utils.load_checkpoint
    if hasattr(original, "tells_criterion"):
        return

    @functools.wraps(original)
    def load_checkpoint(cfg: Any, trainer: Any, **kwargs: Any) -> Any:
        criterion = trainer.get_criterion()
        if hasattr(criterion, "before_restoring"):
            criterion.before_restoring()
        return original(cfg, trainer, **kwargs)

    load_checkpoint.tells_criterion = True
    checkpoint_utils.load_checkpoint = load_checkpoint


def check_resume(cfg: Any, name: str) -> None:
    """Looks at the checkpoint that fairseq will restore, if there is one, and logs what it is.

    Refuses what fairseq would end at with a traceback: a truncated file, and an optimiser that another criterion has
    trained.

    Args:
        cfg: options of a criterion: `save_dir`, `restore_file`, `reset_optimizer`.
        name: class name of the criterion, as fairseq saves it.

    Raises:
        ValueError: the checkpoint is damaged, or is of another criterion and its optimiser is not reset.
    """
    path = restored_checkpoint(cfg)
    state = None if path is None else _opened(path)
    if path is None or state is None:
        return
    found = _criterion_of(state)
    if not cfg.reset_optimizer and found not in (None, name):
        raise ValueError(
            f"{path}: found a checkpoint trained with {found}, expected {name}; add --reset-optimizer (and "
            "--reset-dataloader --reset-meters --reset-lr-scheduler to start its schedule afresh), or choose another "
            "--save-dir"
        )
    logger.info(_described(path, state))


def _opened(path: Path) -> dict[str, Any] | None:
    """The checkpoint; None where only fairseq can open it, which knows more formats."""
    try:
        return open_checkpoint(path)
    except UnreadableCheckpoint as error:
        raise ValueError(f"{error}; {_remedy(path)}") from error
    except UserError as error:
        logger.warning(f"could not tell which criterion trained the checkpoint: {error}")
        return None


def _remedy(damaged: Path) -> str:
    whole = _newest_whole(damaged)
    if whole is None:
        return "there is no whole one beside it: remove it to start from the beginning"
    return f"go on from the newest whole one beside it, with --restore-file {whole}"


def _newest_whole(damaged: Path) -> Path | None:
    others = [path for path in damaged.parent.glob("checkpoint*.pt") if path.name != damaged.name]
    for path in sorted(others, key=lambda path: path.stat().st_mtime, reverse=True):
        try:
            open_checkpoint(path)
        except UserError:  # damaged too
            continue
        return path
    return None


def _criterion_of(state: dict[str, Any]) -> str | None:
    """The criterion of the last optimiser in a checkpoint; None where there is none, or its state was not saved."""
    if state.get("last_optimizer_state") is None or not state.get("optimizer_history"):
        return None
    return state["optimizer_history"][-1].get("criterion_name")


def _described(path: Path, state: dict[str, Any]) -> str:
    history, extra = state.get("optimizer_history") or [{}], state.get("extra_state") or {}
    update, criterion = (history[-1].get(key, "unknown") for key in ("num_updates", "criterion_name"))
    epoch = extra.get("train_iterator", {}).get("epoch", "unknown")
    line = f"found {path} to start from: update {update}, epoch {epoch}, trained with {criterion}"
    if any(STATE_KEY in task for task in extra.values() if isinstance(task, dict)):
        return line
    return f"{line}; it holds no state of a criterion of agg-fairseq: what this one counts starts empty"
