"""What a training goes on from: looked at, and said in one line, before any training data is read.

A criterion is built too early to look: fairseq-validate builds that of a checkpoint too, with the options of the
training that it came from, and restores nothing. Only fairseq-train calls `checkpoint_utils.load_checkpoint`.
"""

from __future__ import annotations

import functools
import glob
import logging
import shlex
from pathlib import Path
from typing import Any

from fairseq import checkpoint_utils

from ..checkpoint import Checkpoint, UnreadableCheckpoint
from ..errors import UserError, fail
from ..restoring import fine_tunes, restored_checkpoint
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
        if not hasattr(criterion, "before_restoring"):
            return original(cfg, trainer, **kwargs)
        criterion.before_restoring()
        try:
            return original(cfg, trainer, **kwargs)
        except AssertionError as error:
            if "--reset-optimizer" not in str(error):
                raise
            fail(f"--criterion {criterion.name}: {restored_checkpoint(cfg)}: {error}")  # another --optimizer

    load_checkpoint.tells_criterion = True
    checkpoint_utils.load_checkpoint = load_checkpoint


def check_resume(cfg: Any, name: str) -> None:
    """Looks at the checkpoint that fairseq will restore, if there is one, and logs what it is.

    Refuses what fairseq would end at with a traceback: a file that is truncated, that holds more than tensors and
    values, or that is no checkpoint of fairseq's; and an optimiser that another criterion has trained.

    Args:
        cfg: options of a criterion: `reset_optimizer`, `reset_dataloader`, and those of `restored_checkpoint`.
        name: class name of the criterion, as fairseq saves it.

    Raises:
        ValueError: the checkpoint is none, is damaged, or is of another criterion and its optimiser is not reset.
    """
    path = restored_checkpoint(cfg)
    if path is None:
        return
    state = _opened(path, cfg.checkpoint_suffix or "")
    found, tuned = _criterion_of(state), fine_tunes(cfg)
    if not (cfg.reset_optimizer or tuned) and found not in (None, name):
        raise ValueError(
            f"{path}: found a checkpoint trained with {found}, expected {name}; add --reset-optimizer (and "
            "--reset-dataloader --reset-meters --reset-lr-scheduler to start its schedule afresh), or choose another "
            "--save-dir"
        )
    logger.info(f"{_described(path, state)}{_left_out(state, cfg.reset_dataloader or tuned)}")


def _opened(path: Path, suffix: str) -> dict[str, Any]:
    try:
        state = Checkpoint(path).state
    except UnreadableCheckpoint as error:
        raise ValueError(f"{error}; {_remedy(path, suffix)}") from error
    except UserError as error:
        raise ValueError(str(error)) from error
    return state


def _remedy(damaged: Path, suffix: str) -> str:
    whole, is_last = _newest_whole(damaged, suffix), damaged.name == f"checkpoint_last{suffix}.pt"
    if whole is None:
        instead = "remove it to start from the beginning" if is_last else "name another one"
        return f"there is no whole one beside it: {instead}"
    if not is_last:
        return f"the newest whole one beside it is {whole}"
    return f"go on from the newest whole one beside it: cp {shlex.quote(str(whole))} {shlex.quote(str(damaged))}"


def _newest_whole(damaged: Path, suffix: str) -> Path | None:
    found = damaged.parent.glob(f"checkpoint*{glob.escape(suffix)}.pt")
    others = [path for path in found if path.name != damaged.name and path.is_file()]
    for path in sorted(others, key=lambda path: path.stat().st_mtime, reverse=True):
        try:
            Checkpoint(path)
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
    history = state.get("optimizer_history") or [{}]
    update, criterion = (history[-1].get(key, "unknown") for key in ("num_updates", "criterion_name"))
    epoch = (_extra(state).get("train_iterator") or {}).get("epoch", "unknown")
    return f"found {path} to start from: update {update}, epoch {epoch}, trained with {criterion}"


def _left_out(state: dict[str, Any], is_reset: bool) -> str:
    if is_reset:
        return "; its position in the data is left out, and with it the state of a criterion: counts start empty"
    if any(STATE_KEY in task for task in _extra(state).values() if isinstance(task, dict)):
        return ""
    return "; it holds no state of a criterion of agg-fairseq: what this one counts starts empty"


def _extra(state: dict[str, Any]) -> dict[str, Any]:
    return state.get("extra_state") or {}
