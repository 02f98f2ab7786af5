"""What fairseq's trainer does before and after it builds an optimizer. Importing this module
replaces its method."""

import functools
from typing import Any

from fairseq import utils
from fairseq.optim import OPTIMIZER_REGISTRY
from fairseq.trainer import Trainer
from torch import nn

from ..data.binarized import training_counts
from ..errors import UserError, fail

_build_optimizer = Trainer._build_optimizer


def fill_placeholder(
    model: nn.Module, task: Any, train_subset: str, max_positions: Any = None
) -> None:
    """Gives an output layer with `is_placeholder` the counts of targets (V,) by its `fill`; the
    others as of `training_counts`."""
    layer = getattr(getattr(model, "decoder", None), "output_projection", None)
    if getattr(layer, "is_placeholder", False):
        try:
            layer.fill(training_counts(task, train_subset, max_positions))
        except (UserError, ValueError) as error:
            fail(str(error))


@functools.wraps(_build_optimizer)
def build_optimizer(trainer: Any) -> None:
    """Completes a model before its optimizer is built, and tells the optimizer of its trainer after
    it.

    fairseq builds the optimizer after it has loaded a checkpoint; what that lacks, and model
    builders do not know, is counted then: not where models are only evaluated. The float32 copies
    of an optimizer with `attach` are kept apart, as --fp16-no-flatten-grads does.
    """
    model, common = trainer.get_model(), trainer.cfg.common
    layer = getattr(getattr(model, "decoder", None), "output_projection", None)
    if hasattr(layer, "is_placeholder"):
        dataset = trainer.cfg.dataset
        positions = utils.resolve_max_positions(
            trainer.task.max_positions(), model.max_positions(), dataset.max_tokens
        )
        fill_placeholder(model, trainer.task, dataset.train_subset, positions)
        # a wrapper for several workers would have the parameters of the placeholder
        trainer._wrapped_model = None
    optimizer = trainer.cfg.optimizer
    attaches = hasattr(OPTIMIZER_REGISTRY.get(optimizer._name), "attach")
    for name, group in getattr(optimizer, "groups", {}).items():  # of --optimizer composite
        if hasattr(OPTIMIZER_REGISTRY.get(group["optimizer"]["_name"]), "attach"):
            fail(
                f"--optimizer {optimizer._name}: found {group['optimizer']['_name']} in its group "
                f"{name}; expected it by itself, as --optimizer"
            )
    if attaches and trainer.cfg.optimization.use_bmuf:
        # which has put down the parameters in their order
        fail(f"--optimizer {optimizer._name}: found --use-bmuf; expected one of them")
    if attaches and common.fp16:
        common.fp16_no_flatten_grads = True
    _build_optimizer(trainer)
    if attaches:
        built = trainer._optimizer
        for wrapped in ("fp32_optimizer", "wrapped_optimizer"):  # the latter is memory-efficient
            built = getattr(built, wrapped, built)
        built.attach(trainer)


Trainer._build_optimizer = build_optimizer
