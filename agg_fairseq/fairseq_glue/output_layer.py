"""The output embedding of a fairseq model, the features that meet it there, and its copies in an optimizer."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from fairseq.models.lstm import LSTMDecoder
from torch import Tensor, nn

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
            f"--criterion {criterion}: found a model with the factorized output layer, which has no softmax over all "
            "tokens to work on; expected --criterion f2_softmax, or one of fairseq's, such as cross_entropy"
        )
    # Where decoders keep the layer: transformers; LSTMs with weights of their own; LSTMs with tied weights.
    tied = decoder.embed_tokens if getattr(decoder, "share_input_output_embed", False) else None
    layer = getattr(decoder, "output_projection", getattr(decoder, "fc_out", tied))
    weight, problem = getattr(layer, "weight", None), None
    name = type(decoder).__name__
    if decoder is None:
        problem = "a model without a decoder"
    elif getattr(decoder, "adaptive_softmax", None) is not None:
        problem = f"an adaptive softmax in {name}"
    elif not _takes_features_only(decoder) and not isinstance(decoder, LSTMDecoder):
        problem = f"{name}, whose forward has no `features_only`"
    elif not isinstance(layer, nn.Linear | nn.Embedding):
        problem = f"{name} with an output layer of type {type(layer).__name__}"
    elif weight.dim() != 2 or weight.size(0) != vocabulary:
        problem = f"{name} with an output layer of shape {tuple(weight.shape)} (sharded parameters?)"
    if problem:
        fail(
            f"--criterion {criterion}: found {problem}; expected a decoder that yields features and ends in a linear "
            f"layer over the {vocabulary} target tokens (fairseq's transformer, transformer_lm, lstm and lstm_lm "
            "families without --adaptive-softmax-cutoff)"
        )
    return weight, getattr(layer, "bias", None)


def factorized_layer(model: nn.Module) -> FactorizedSoftmax | None:
    """The factorized output layer of a fairseq model, None if it has another one."""
    layer = getattr(getattr(model, "decoder", None), "output_projection", None)
    return layer if isinstance(layer, FactorizedSoftmax) else None


def features_of(model: Any, net_input: dict[str, Any], dimension: int) -> Any:
    """What the model's forward returns, with the features (B, T, D) in place of the logits.

    The model is called as the trainer passes it, so that a wrapper for several workers takes part.

    Args:
        model: a model whose `output_layer` was found.
        net_input: the keyword arguments of its forward, from a batch.
        dimension: D.

    Raises:
        SystemExit: with status 2, after one line: the forward returns something else.
    """
    inner = unwrapped(model)
    if _takes_features_only(inner) and _takes_features_only(inner.decoder):
        net_output = model(**net_input, features_only=True)
    else:
        # A decoder whose forward always ends in `output_layer`, as the LSTM's does: for this call it returns its input.
        inner.decoder.output_layer = lambda features: features
        try:
            net_output = model(**net_input)
        finally:
            del inner.decoder.output_layer  # so that the method of the class is found again
    if net_output[0].size(-1) != dimension:
        fail(
            f"found that {type(inner).__name__} returns {net_output[0].size(-1)} numbers for each position where its "
            f"features are asked for; expected {dimension}, as its output embeddings have: it is not supported"
        )
    return net_output


def unwrapped(model: Any) -> Any:
    """The model itself, without its wrappers for several workers."""
    while hasattr(model, "module"):
        model = model.module
    return model


def _takes_features_only(module: nn.Module) -> bool:
    """Does the forward take `features_only`, by name or by passing all options on to its decoder?"""
    parameters = inspect.signature(module.forward).parameters
    if "features_only" in parameters:
        return True
    takes_anything = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    return takes_anything and hasattr(module, "decoder") and _takes_features_only(module.decoder)


def float32_copies(optimizer: Any, weight: nn.Parameter) -> Iterator[Tensor]:
    """The float32 copy of a half-precision parameter in fairseq's FP16Optimizer; nothing for other optimizers.

    Args:
        optimizer: of the trainer. FP16Optimizer keeps `fp16_params`, and their copies in `fp32_params`: a list of
            parameters, or one flat tensor of all, or one such tensor for each device.
        weight: a parameter of the model.

    Yields:
        Views with the shape of `weight`.
    """
    parameters = getattr(optimizer, "fp16_params", ())
    position = next((number for number, parameter in enumerate(parameters) if parameter is weight), None)
    if position is None or not hasattr(optimizer, "fp32_params"):
        return
    if not optimizer.has_flat_params:
        yield optimizer.fp32_params[position].data
        return
    offset = sum(parameter.numel() for parameter in parameters[:position])
    flat = optimizer.fp32_params
    for copy in flat.values() if isinstance(flat, dict) else [flat]:
        yield copy.data[offset : offset + weight.numel()].view_as(weight)
