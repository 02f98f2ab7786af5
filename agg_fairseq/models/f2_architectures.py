"""Every architecture of a parent model, under the name of the model with the factorised layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairseq.models import (
    ARCH_CONFIG_REGISTRY,
    ARCH_MODEL_INV_REGISTRY,
    ARCH_MODEL_REGISTRY,
    register_model_architecture,
)


def register_architectures(parent: str, child: str) -> None:
    """Registers `child` + suffix for every `parent` + suffix that fairseq knows, with the same sizes.

    Args:
        parent: a registered model, such as `transformer_lm`.
        child: the model of the same options, such as `transformer_lm_f2`.
    """
    for name in list(ARCH_MODEL_INV_REGISTRY[parent]):
        architecture = child + name.removeprefix(parent)
        if name.startswith(parent) and architecture not in ARCH_MODEL_REGISTRY:
            register_model_architecture(child, architecture)(_without_adaptive_softmax(ARCH_CONFIG_REGISTRY[name]))


def _without_adaptive_softmax(configure: Callable[[Any], None]) -> Callable[[Any], None]:
    """An architecture whose parent ends in an adaptive softmax ends in the factorised layer, and keeps the rest."""

    def configured(options: Any) -> None:
        given = getattr(options, "adaptive_softmax_cutoff", None)
        configure(options)
        options.adaptive_softmax_cutoff = given
        if given is None:
            options.tie_adaptive_weights = options.tie_adaptive_proj = False

    return configured
