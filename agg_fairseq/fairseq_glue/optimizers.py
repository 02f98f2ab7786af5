"""Tells an optimizer of this package which model it trains, which fairseq tells no optimizer."""

from __future__ import annotations

import functools
from typing import Any

from fairseq.optim import OPTIMIZER_REGISTRY
from fairseq.trainer import Trainer

from ..errors import fail


def attach_optimizers() -> None:
    """Makes fairseq's trainer call `attach(model, criterion)` of an optimizer that has it, once it is built.

    The float32 copies of an optimizer without `supports_flat_params` are kept apart, as --fp16-no-flatten-grads does,
    where fairseq would end with an error. Trainings with other optimizers are not changed.
    """
    original = Trainer._build_optimizer
    if hasattr(original, "attaches"):
        return

    @functools.wraps(original)
    def _build_optimizer(trainer: Any) -> None:
        name, common = trainer.cfg.optimizer._name, trainer.cfg.common
        if not hasattr(OPTIMIZER_REGISTRY.get(name), "attach"):
            return original(trainer)
        if trainer.is_fsdp:
            fail(f"--optimizer {name}: found --ddp-backend fully_sharded, which leaves no matrix whole; use legacy_ddp")
        if common.fp16:
            common.fp16_no_flatten_grads = True
        original(trainer)
        optimizer = trainer._optimizer
        for wrapped in ("fp32_optimizer", "wrapped_optimizer"):  # of FP16Optimizer and AMPOptimizer; memory-efficient
            optimizer = getattr(optimizer, wrapped, optimizer)
        optimizer.attach(trainer.get_model(), trainer.get_criterion())

    _build_optimizer.attaches = True
    Trainer._build_optimizer = _build_optimizer
