"""The output embedding of a fairseq model: where the features meet `W`."""

from __future__ import annotations

import inspect
from typing import Any

from torch import Tensor, nn

from ..errors import fail


def output_layer(model: nn.Module, vocabulary: int, criterion: str) -> tuple[Tensor, Tensor | None]:
    """`W` (V, D) and its bias (V,) or None, of a decoder that also yields the features before them.

    Args:
        model: a fairseq model, as the trainer passes it, wrapped or not.
        vocabulary: V, the size of the target dictionary.
        criterion: name of the criterion that asks, for the error's text.

    Raises:
        SystemExit: with status 2, after one line that names what was found and what is expected.
    """
    decoder = getattr(model, "decoder", None)
    problem = _problem(decoder, vocabulary) or _problem_of_model(model)
    if problem:
        fail(
            f"--criterion {criterion}: found {problem}; expected a model and decoder whose forward takes "
            f"`features_only` and whose `output_projection` is a linear layer over the {vocabulary} target tokens "
            "(fairseq's transformer and transformer_lm families without --adaptive-softmax-cutoff)"
        )
    return decoder.output_projection.weight, decoder.output_projection.bias


def _problem_of_model(model: Any) -> str | None:
    while hasattr(model, "module"):  # what wraps it for several workers
        model = model.module
    parameters = inspect.signature(model.forward).parameters.values()
    if any(p.name == "features_only" or p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    return f"{type(model).__name__}, whose forward has no `features_only`"


def _problem(decoder: Any, vocabulary: int) -> str | None:
    if decoder is None:
        return "a model without a decoder"
    name = type(decoder).__name__
    if getattr(decoder, "adaptive_softmax", None) is not None:
        return f"an adaptive softmax in {name}"
    if "features_only" not in inspect.signature(decoder.forward).parameters:
        return f"{name}, whose forward has no `features_only`"
    layer = getattr(decoder, "output_projection", None)
    if not isinstance(layer, nn.Linear):
        return f"{name} with an output_projection of type {type(layer).__name__}"
    if layer.weight.dim() != 2 or layer.weight.size(0) != vocabulary:
        return f"{name} with an output_projection of shape {tuple(layer.weight.shape)} (sharded parameters?)"
    return None
