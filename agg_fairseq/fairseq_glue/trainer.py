"""Connects models and optimizers of this package to fairseq's trainer."""

import functools
import logging
from typing import Any

from fairseq import checkpoint_utils
from fairseq.optim import OPTIMIZER_REGISTRY
from fairseq.trainer import Trainer
from torch import nn

from ..data.binarized import training_counts
from ..errors import UserError, fail

logger = logging.getLogger(__name__)


def hook_trainer() -> None:
    """Makes fairseq's trainer complete a model of this package before it builds an optimizer, and attach one after it.

    Some output layers of this package need counts of the training data, which fairseq's model builders do not have.
    fairseq builds the optimizer after it has loaded a checkpoint; what the checkpoint lacks is filled in then. So
    nothing is counted where models are only evaluated.

    `attach(trainer)` of an optimizer that has it is called each time that the trainer has built one. The float32 copies
    of such an optimizer are kept apart, as --fp16-no-flatten-grads does.
    """
    original = Trainer._build_optimizer
    if hasattr(original, "attaches"):
        return

    @functools.wraps(original)
    def _build_optimizer(trainer: Any) -> None:
        if hasattr(getattr(trainer.get_model(), "decoder", None), "is_placeholder"):
            fill_placeholder(trainer.get_model(), trainer.task, trainer.cfg.dataset.train_subset)
            trainer._wrapped_model = None  # a wrapper for several workers would have the parameters of the placeholder
        name, common = trainer.cfg.optimizer._name, trainer.cfg.common
        if not hasattr(OPTIMIZER_REGISTRY.get(name), "attach"):
            return original(trainer)
        if common.fp16:
            common.fp16_no_flatten_grads = True
        original(trainer)
        optimizer = trainer._optimizer
        for wrapped in ("fp32_optimizer", "wrapped_optimizer"):  # of FP16Optimizer and AMPOptimizer; memory-efficient
            optimizer = getattr(optimizer, wrapped, optimizer)
        optimizer.attach(trainer)

    _build_optimizer.attaches = True
    Trainer._build_optimizer = _build_optimizer


def fill_placeholder(model: nn.Module, task: Any, train_subset: str) -> None:
    """Gives a decoder with `is_placeholder` the counts of targets (V,) by its `fill`, or ends in one line, status 2."""
    if not getattr(getattr(model, "decoder", None), "is_placeholder", False):
        return
    try:
        model.decoder.fill(training_counts(task, train_subset))
    except (UserError, ValueError) as error:
        fail(str(error))
    model.decoder.is_placeholder = False


def validate_and_save_average(trainer: Any) -> None:
    """Makes a trainer exchange the weights with their average before it validates and saves, and back before it trains.

    A checkpoint then holds the average as the model, for every tool that reads it, and the weights in the state of the
    optimizer, an `NTASGD`. It is told the loss of each validation before the checkpoint is written, by all workers.
    """
    if hasattr(trainer, "before_saving"):  # the optimizer is built a second time in a resume
        return

    def hold(average: bool) -> None:
        optimizer = trainer.optimizer
        if optimizer.optimizer.swapped != average:
            optimizer.optimizer.swap()
            if hasattr(optimizer, "_sync_fp32_params_to_fp16"):  # from the float32 copies to the model
                optimizer._sync_fp32_params_to_fp16()

    def observe(loss: float | None) -> None:
        updates = trainer.get_num_updates()
        sign = -1 if trainer.cfg.checkpoint.maximize_best_checkpoint_metric else 1  # `observe` takes lower for better
        if loss is not None and trainer.optimizer.optimizer.observe(sign * float(loss), updates):
            logger.info(f"validation has stopped improving: the average of the weights begins after update {updates}")

    def before_saving(loss: float | None) -> None:
        observe(loss)
        hold(average=True)

    begin_valid_epoch, train_step, lr_step = trainer.begin_valid_epoch, trainer.train_step, trainer.lr_step

    def validate(*arguments: Any, **options: Any) -> Any:
        hold(average=True)
        return begin_valid_epoch(*arguments, **options)

    def train(*arguments: Any, **options: Any) -> Any:
        hold(average=False)
        return train_step(*arguments, **options)

    def end_epoch(epoch: int, val_loss: float | None = None) -> Any:
        observe(val_loss)  # of a validation after which nothing was saved
        return lr_step(epoch, val_loss)

    trainer.before_saving = before_saving
    trainer.begin_valid_epoch, trainer.train_step, trainer.lr_step = validate, train, end_epoch

    save_checkpoint = checkpoint_utils.save_checkpoint
    if not hasattr(save_checkpoint, "tells_trainer"):

        @functools.wraps(save_checkpoint)
        def save(cfg: Any, trainer: Any, epoch_itr: Any, val_loss: float | None) -> Any:
            if hasattr(trainer, "before_saving"):
                trainer.before_saving(val_loss)
            return save_checkpoint(cfg, trainer, epoch_itr, val_loss)

        save.tells_trainer = True
        checkpoint_utils.save_checkpoint = save
