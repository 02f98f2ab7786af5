"""Which checkpoint a training starts from, and whether it can: decided and logged before any training data is read.

fairseq-train decides this in `checkpoint_utils.load_checkpoint`, and ends with a traceback where it cannot go on. The
criterion's constructor is too early to look: fairseq-validate, too, builds the criterion of a checkpoint, with the
options of the training that it came from, and resumes nothing. So `load_checkpoint` is wrapped, which fairseq-train
alone calls.
"""

from __future__ import annotations

import functools
import glob
import logging
import shlex
from pathlib import Path
from typing import Any

from fairseq import checkpoint_utils
from fairseq.optim.lr_scheduler.reduce_lr_on_plateau import ReduceLROnPlateauLRSchedule

from ..checkpoints.fairseq_checkpoint import STATE_KEY, Checkpoint, UnreadableCheckpoint
from ..errors import UserError, fail
from .hooks import forget_early_stopping

logger = logging.getLogger(__name__)

LAST = "checkpoint_last.pt"
"""fairseq's default of --restore-file."""
BAD_EPOCHS = "num_bad_epochs"


def restored_checkpoint(options: Any) -> Path | None:
    """The file that fairseq resumes or fine-tunes from; None if there is none on this machine's disks.

    Args:
        options: with `save_dir` and `restore_file`, and optionally `checkpoint_suffix`, `continue_once` and
            `finetune_from_model`.
    """
    path = _by_restore_file(options)
    if options.restore_file == LAST and not path.is_file():
        path = Path(_option(options, "continue_once") or _option(options, "finetune_from_model") or path)
    return path if path.is_file() else None


def fine_tunes(options: Any) -> bool:
    """Does fairseq take the weights of --finetune-from-model, and nothing else?

    Args:
        options: as of `restored_checkpoint`.
    """
    is_first_start = options.restore_file == LAST and not _by_restore_file(options).is_file()
    return is_first_start and not _option(options, "continue_once") and bool(_option(options, "finetune_from_model"))


def _by_restore_file(options: Any) -> Path:
    """The path that --restore-file names; fairseq inserts the suffix before each `.pt`."""
    suffix = _option(options, "checkpoint_suffix") or ""
    if options.restore_file == LAST:
        return Path(options.save_dir) / f"checkpoint_last{suffix}.pt"
    return Path(options.restore_file.replace(".pt", f"{suffix}.pt"))


def _option(options: Any, name: str) -> str | None:
    return getattr(options, name, None)


def listen_to_restoring() -> None:
    """Makes fairseq call `before_restoring()` of the criterion that it trains, if it has one, before it restores.

    And makes it restore its learning rate scheduler completely.
    """
    original = checkpoint_utils.load_checkpoint
    if hasattr(original, "tells_criterion"):
        return
    save_bad_epochs()

    @functools.wraps(original)
    def load_checkpoint(cfg: Any, trainer: Any, **kwargs: Any) -> Any:
        criterion = trainer.get_criterion()
        if not hasattr(criterion, "before_restoring"):
            return original(cfg, trainer, **kwargs)
        criterion.before_restoring()
        tuned = fine_tunes(cfg)
        try:
            extra_state, iterator = original(cfg, trainer, **kwargs)
        except AssertionError as error:
            if "--reset-optimizer" not in str(error):
                raise
            fail(f"--criterion {criterion.name}: {restored_checkpoint(cfg)}: {error}")  # another --optimizer
        if cfg.reset_optimizer or cfg.reset_meters or tuned:
            forget_early_stopping()
        reset = cfg.reset_optimizer or cfg.reset_lr_scheduler or cfg.reset_dataloader or tuned
        if extra_state is not None and not reset:
            end_epoch(trainer, extra_state)
        return extra_state, iterator

    load_checkpoint.tells_criterion = True
    checkpoint_utils.load_checkpoint = load_checkpoint


def end_epoch(trainer: Any, extra_state: dict[str, Any]) -> None:
    """Tells the scheduler the loss of the validation at the end of an epoch, if the checkpoint was saved just there.

    fairseq validates, saves, and then steps the scheduler. So the step is missing in such a checkpoint: the reduction
    of the learning rate may be due, and with every scheduler the best loss.

    Args:
        trainer: fairseq's, restored.
        extra_state: of the checkpoint.
    """
    position, loss = extra_state["train_iterator"], extra_state.get("val_loss")
    epoch = position["epoch"] - 1  # the one that was finished, if the position is the beginning of the next one
    if position.get("iterations_in_epoch", 0) == 0 and epoch >= 1 and loss is not None:
        trainer.lr_step(epoch)  # fairseq has already announced the next one
        trainer.lr_step(epoch, loss)


def save_bad_epochs() -> None:
    """Adds to the saved state of `reduce_lr_on_plateau` for how many validations there was no improvement."""
    scheduler = ReduceLROnPlateauLRSchedule
    original_save, original_load = scheduler.state_dict, scheduler.load_state_dict

    def state_dict(self: Any) -> dict[str, Any]:
        return {**original_save(self), BAD_EPOCHS: self.lr_scheduler.num_bad_epochs}

    def load_state_dict(self: Any, state: dict[str, Any]) -> None:
        original_load(self, state)
        self.lr_scheduler.num_bad_epochs = int(state.get(BAD_EPOCHS, 0))

    scheduler.state_dict, scheduler.load_state_dict = state_dict, load_state_dict


def check_resume(cfg: Any, name: str) -> None:
    """Looks at the checkpoint that fairseq will restore, if there is one, and logs what it is.

    Refuses what fairseq would end at with a traceback: a file that is truncated, that holds more than tensors and
    plain values, or that is no checkpoint of fairseq; and the state of an optimizer that another criterion has trained.

    Args:
        cfg: options of a criterion: `reset_optimizer`, `reset_dataloader`, and those of `restored_checkpoint`.
        name: class name of the criterion, as fairseq saves it.

    Raises:
        ValueError: the file is no checkpoint, is damaged, or is of another criterion and its optimizer is not reset.
    """
    path = restored_checkpoint(cfg)
    if path is None:
        return
    try:
        state = Checkpoint(path).state
    except UnreadableCheckpoint as error:
        raise ValueError(f"{error}; {_remedy(path, cfg.checkpoint_suffix or '')}") from error
    except UserError as error:
        raise ValueError(str(error)) from error

    history = (state.get("optimizer_history") or [{}])[-1]
    found, tuned = history.get("criterion_name", "unknown"), fine_tunes(cfg)
    has_optimizer = state.get("last_optimizer_state") is not None and "criterion_name" in history
    if has_optimizer and found not in (None, name) and not (cfg.reset_optimizer or tuned):
        raise ValueError(
            f"{path}: found a checkpoint trained with {found}, expected {name}; add --reset-optimizer (and "
            "--reset-dataloader --reset-meters --reset-lr-scheduler to start its schedule afresh), or choose another "
            "--save-dir"
        )

    extra = state.get("extra_state") or {}
    epoch = (extra.get("train_iterator") or {}).get("epoch", "unknown")
    line = f"found {path} to start from: update {history.get('num_updates', 'unknown')}, epoch {epoch}, trained with"
    if cfg.reset_dataloader or tuned:
        left_out = "; its position in the data is left out, and with it the state of a criterion: counts start empty"
    elif any(STATE_KEY in task for task in extra.values() if isinstance(task, dict)):
        left_out = ""
    else:
        left_out = "; it holds no state of a criterion of agg-fairseq: what this one counts starts empty"
    logger.info(f"{line} {found}{left_out}")


def _remedy(damaged: Path, suffix: str) -> str:
    """How to go on from the newest whole checkpoint beside a damaged one."""
    is_last = damaged.name == f"checkpoint_last{suffix}.pt"
    found = damaged.parent.glob(f"checkpoint*{glob.escape(suffix)}.pt")
    others = [path for path in found if path.name != damaged.name and path.is_file()]
    for path in sorted(others, key=lambda path: path.stat().st_mtime, reverse=True):
        try:
            Checkpoint(path)
        except UserError:  # damaged too
            continue
        if not is_last:
            return f"the newest whole one beside it is {path}"
        return f"go on from the newest whole one beside it: cp {shlex.quote(str(path))} {shlex.quote(str(damaged))}"
    instead = "remove it to start from the beginning" if is_last else "name another one"
    return f"there is no whole one beside it: {instead}"
