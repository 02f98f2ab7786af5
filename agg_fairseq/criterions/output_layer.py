"""The output embedding of a fairseq model, and the features that meet it there."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from ..errors import fail
from ..modules import FactorizedSoftmax


def output_layer(model: nn.Module, vocabulary: int, criterion: str) -> tuple[nn.Parameter, nn.Parameter | None]:
    """`W` (V, D) and its bias (V,) or None, of a decoder that also yields the features before them.

    Args:
        model: a fairseq model, as the trainer passes it, wrapped or not.
        vocabulary: V, the size of the target dictionary.
        criterion: name of the criterion that asks, for the error's text.

    Raises:
        SystemExit: with status 2, after one line that names what was found and what is expected.
    """
    decoder = getattr(model, "decoder", None)
    if factorized_layer(model) is not None:
        fail(
            f"--criterion {criterion}: found a model with the factorised output layer, which has no softmax over all "
            "tokens to work on; expected --criterion f2_softmax, or one of fairseq's, such as cross_entropy"
        )
    problem = _problem(decoder, vocabulary)
    if problem:
        fail(
            f"--criterion {criterion}: found {problem}; expected a decoder that yields features and ends in a linear "
            f"layer over the {vocabulary} target tokens (fairseq's transformer, transformer_lm, lstm and lstm_lm "
            "families without --adaptive-softmax-cutoff)"
        )
    return _weight_and_bias(decoder)


def factorized_layer(model: nn.Module) -> FactorizedSoftmax | None:
    """The factorised output layer of a fairseq model, None where it has another."""
    layer = getattr(getattr(model, "decoder", None), "output_projection", None)
    return layer if isinstance(layer, FactorizedSoftmax) else None


def features_of(model: Any, net_input: dict[str, Any], dimension: int) -> Any:
    """What the model's forward returns, with the features (B, T, D) in place of the logits.

    Through the forward of the model as the trainer passes it, so that what wraps it for several workers takes part.

    Args:
        model: a model whose `output_layer` was found.
        net_input: a batch's.
        dimension: D.

    Raises:
        SystemExit: with status 2, after one line: the forward returns something else.
    """
    inner = unwrapped(model)
    if _takes_features_only(inner) and _takes_features_only(inner.decoder):
        net_output = model(**net_input, features_only=True)
    else:
        with _without_output_layer(inner.decoder):
            net_output = model(**net_input)
    if net_output[0].size(-1) != dimension:
        fail(
            f"found that {type(inner).__name__} returns {net_output[0].size(-1)} numbers for each position where its "
            f"features are asked for; expected {dimension}, as its output embeddings have: it is not supported"
        )
    return net_output


def unwrapped(model: Any) -> Any:
    """The model itself, inside what wraps it for several workers."""
    while hasattr(model, "module"):
        model = model.module
    return model


@contextmanager
def _without_output_layer(decoder: nn.Module) -> Iterator[None]:
    """For decoders whose forward always ends in `output_layer`, as the LSTM's does: makes that return its input."""
    decoder.output_layer = lambda features: features
    try:
        yield
    finally:
        del decoder.output_layer  # the class's own shows again


def _takes_features_only(module: nn.Module) -> bool:
    parameters = inspect.signature(module.forward).parameters
    if "features_only" in parameters:
        return True
    takes_anything = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    return takes_anything and hasattr(module, "decoder") and _takes_features_only(module.decoder)


def _weight_and_bias(decoder: Any) -> tuple[nn.Parameter, nn.Parameter | None]:
    layer = _linear(decoder)
    return layer.weight, getattr(layer, "bias", None)


def _linear(decoder: Any) -> nn.Module | None:
    """Where the decoder's weights stand: transformers, LSTMs with weights of their own, LSTMs with tied weights."""
    for name in ("output_projection", "fc_out"):
        if hasattr(decoder, name):
            return getattr(decoder, name)
    return decoder.embed_tokens if getattr(decoder, "share_input_output_embed", False) else None


def _problem(decoder: Any, vocabulary: int) -> str | None:
    if decoder is None:
        return "a model without a decoder"
    name = type(decoder).__name__
    if getattr(decoder, "adaptive_softmax", None) is not None:
        return f"an adaptive softmax in {name}"
    if not _takes_features_only(decoder) and not _ends_in_output_layer(decoder):
        return f"{name}, whose forward has no `features_only`"
    layer = _linear(decoder)
    if not isinstance(layer, nn.Linear | nn.Embedding):
        return f"{name} with an output layer of type {type(layer).__name__}"
    if layer.weight.dim() != 2 or layer.weight.size(0) != vocabulary:
        return f"{name} with an output layer of shape {tuple(layer.weight.shape)} (sharded parameters?)"
    return None


def _ends_in_output_layer(decoder: nn.Module) -> bool:
    """fairseq's LSTM: its forward is `output_layer(extract_features(…))`."""
    from fairseq.models.lstm import LSTMDecoder

    return isinstance(decoder, LSTMDecoder)
