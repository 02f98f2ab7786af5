"""Architectures for a model that replaces the output layer of one of fairseq's: the parent's, with the same sizes."""

from collections.abc import Callable
from typing import Any

from fairseq.models import (
    ARCH_CONFIG_REGISTRY,
    ARCH_MODEL_INV_REGISTRY,
    ARCH_MODEL_REGISTRY,
    register_model_architecture,
)

from ..errors import fail


def register_sizes(parent: str, child: str) -> None:
    """Registers every architecture of `parent` for `child`: of transformer_lm_big, child + "_big".

    Some of fairseq's architectures end in an adaptive softmax. Theirs do not, unless the user asks for one, which
    `refuse_adaptive_softmax` then refuses; their input stays adaptive.

    Args:
        parent: name of fairseq's model.
        child: name of the model with another output layer, registered already.
    """

    def without_adaptive_softmax(configure: Callable[[Any], None]) -> Callable[[Any], None]:
        def configured(options: Any) -> None:
            given = getattr(options, "adaptive_softmax_cutoff", None)
            configure(options)
            options.adaptive_softmax_cutoff = given
            if given is None:
                options.tie_adaptive_weights = options.tie_adaptive_proj = False

        return configured

    for name in list(ARCH_MODEL_INV_REGISTRY[parent]):
        architecture = child + name.removeprefix(parent)
        if name.startswith(parent) and architecture not in ARCH_MODEL_REGISTRY:
            register_model_architecture(child, architecture)(without_adaptive_softmax(ARCH_CONFIG_REGISTRY[name]))


def refuse_adaptive_softmax(options: Any, architecture: str, layer: str) -> None:
    """Ends in one line and status 2 if the options ask for an adaptive softmax, whose place `layer` takes."""
    if getattr(options, "adaptive_softmax_cutoff", None) is not None:
        fail(
            f"--arch {architecture}: found --adaptive-softmax-cutoff {options.adaptive_softmax_cutoff}; expected "
            f"none, since the {layer} takes its place"
        )
