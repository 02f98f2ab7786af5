"""Connects models and optimizers of this package to fairseq's trainer."""

import functools
from typing import Any

from fairseq.optim import OPTIMIZER_REGISTRY
from fairseq.trainer import Trainer
from torch import nn

from ..data.binarized import training_counts
from ..errors import UserError, fail


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
