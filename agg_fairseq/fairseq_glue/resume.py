"""Which checkpoint a training starts from, and whether it can: decided and logged before any training data is read.

fairseq-train decides this in `checkpoint_utils.load_checkpoint`, and ends with a traceback where it cannot go on. The
criterion's constructor is too early to look: fairseq-validate, too, builds the criterion of a checkpoint, with the
options of the training that it came from, and resumes nothing. So `load_checkpoint` is wrapped, which fairseq-train
alone calls.
"""

import functools
import logging
from pathlib import Path
from typing import Any

from fairseq import checkpoint_utils
from fairseq.optim.lr_scheduler.reduce_lr_on_plateau import ReduceLROnPlateauLRSchedule

from ..checkpoints.fairseq_checkpoint import STATE_KEY, Checkpoint, UnreadableCheckpoint
from ..errors import UserError, fail
from .hooks import forget_early_stopping

logger = logging.getLogger(__name__)

LAST = "checkpoint_last.pt"  # fairseq's default of --restore-file
BAD_EPOCHS = "num_bad_epochs"


def start_of(options: Any) -> tuple[Path, bool]:
    """The file that fairseq starts a training from, if it exists; and whether it takes the weights alone of it."""
    suffix = options.checkpoint_suffix or ""
    if options.restore_file != LAST:
        return Path(options.restore_file.replace(".pt", f"{suffix}.pt")), False
    path = Path(options.save_dir) / f"checkpoint_last{suffix}.pt"
    if path.is_file() or not (options.continue_once or options.finetune_from_model):
        return path, False
    return Path(options.continue_once or options.finetune_from_model), not options.continue_once


def listen_to_restoring() -> None:
    """Makes fairseq call `before_restoring()` of a criterion that has it, and restore its scheduler completely."""
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
        path, fine_tunes = start_of(cfg)
        try:
            extra_state, iterator = original(cfg, trainer, **kwargs)
        except AssertionError as error:
            if "--reset-optimizer" not in str(error):
                raise
            fail(f"--criterion {criterion.name}: {path}: {error}")  # another --optimizer
        if cfg.reset_optimizer or cfg.reset_meters or fine_tunes:
            forget_early_stopping()
        reset = cfg.reset_optimizer or cfg.reset_lr_scheduler or cfg.reset_dataloader or fine_tunes
        if extra_state is not None and not reset:
            end_epoch(trainer, extra_state)
        return extra_state, iterator

    load_checkpoint.tells_criterion = True
    checkpoint_utils.load_checkpoint = load_checkpoint


def end_epoch(trainer: Any, extra_state: dict[str, Any]) -> None:
    """Tells the scheduler the loss of the validation at the end of an epoch, if the checkpoint was saved just there.

    fairseq validates, saves, and then steps the scheduler, so that the step is missing in such a checkpoint.
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

    `cfg` has the options of a criterion, and `name` is that of its class, as fairseq saves it. UserError: the file is
    no checkpoint, is damaged, or is of another criterion and its optimizer is not reset.
    """
    path, tuned = start_of(cfg)
    if not path.is_file():
        return
    try:
        state = Checkpoint(path).state
    except UnreadableCheckpoint as error:
        raise UserError(
            f"{error}; copy another checkpoint to this path to go on from it, or remove the file to start anew"
        ) from error

    history = (state.get("optimizer_history") or [{}])[-1]
    criterion, extra = history.get("criterion_name"), state.get("extra_state") or {}
    restores_optimizer = state.get("last_optimizer_state") is not None and not (cfg.reset_optimizer or tuned)
    if restores_optimizer and criterion not in (None, name):
        raise UserError(
            f"{path}: found a checkpoint trained with {criterion}, expected {name}; add --reset-optimizer (and "
            "--reset-dataloader --reset-meters --reset-lr-scheduler to start its schedule afresh), or choose another "
            "--save-dir"
        )
    if cfg.reset_dataloader or tuned:
        left_out = "; its position in the data is left out, and with it the state of a criterion: counts start empty"
    elif any(STATE_KEY in task for task in extra.values() if isinstance(task, dict)):
        left_out = ""
    else:
        left_out = "; it holds no state of a criterion of agg-fairseq: what this one counts starts empty"
    logger.info(
        f"found {path} to start from: update {history.get('num_updates')}, epoch "
        f"{(extra.get('train_iterator') or {}).get('epoch')}, trained with {criterion}{left_out}"
    )
