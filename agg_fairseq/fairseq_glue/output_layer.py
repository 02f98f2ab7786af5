"""The output layer of a fairseq model, `H Wᵀ + b`: W, and the features H that it is applied to.

fairseq's decoders compute features, then return `self.output_layer(features)`. While the forward
pass of a criterion runs, the `output_layer` of the decoder instance returns its input, so that no
logits are computed.
"""

import weakref
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from fairseq.models import FairseqDecoder
from torch import Tensor, nn

from ..checkpoints.fairseq_checkpoint import OUTPUT_NAMES
from ..errors import fail
from ..f2 import FactorizedSoftmax
from ..modules import UnigramLinear


def unwrapped(model: Any) -> Any:
    """The model itself, without its wrappers for several workers."""
    while hasattr(model, "module"):
        model = model.module
    return model


def output_layer(model: Any) -> nn.Module | None:
    """The module of a model, wrapped or not, that holds W as its `weight`; None if there is no such
    module.

    It is the tied input embedding where the decoder has no layer of its own, and weight
    normalization may compute the `weight` anew for each call.
    """
    decoder = getattr(unwrapped(model), "decoder", None)
    for name in OUTPUT_NAMES:  # decoder.NAME.weight
        layer = getattr(decoder, name.split(".")[1], None)
        if getattr(layer, "weight", None) is not None:
            return layer
    return decoder.embed_tokens if getattr(decoder, "share_input_output_embed", False) else None


def has_output_layer(model: Any) -> bool:
    """Does the decoder of a model pass its features to a linear `output_layer`? Those of fconv and
    lightconv do not."""
    decoder = getattr(unwrapped(model), "decoder", None)
    method = getattr(type(decoder), "output_layer", FairseqDecoder.output_layer)
    has_method = (
        method is not FairseqDecoder.output_layer
        and getattr(decoder, "adaptive_softmax", None) is None
    )
    layer = output_layer(model)
    return has_method and (
        type(layer) in (nn.Linear, nn.Embedding) or isinstance(layer, UnigramLinear)
    )


_compared: weakref.WeakSet[nn.Module] = weakref.WeakSet()
"""Decoders whose `output_layer` was found to compute `H Wᵀ + b`."""


def features_of(
    model: Any, net_input: dict[str, Any], criterion: str
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Runs a model up to its output layer: H (B, T, D), W (V, D), and b (V,) if the layer has one.

    The model is called as the trainer passes it, so that a wrapper for several workers takes part.
    One line and status 2, which names the criterion, for a model whose logits are anything else
    than `H Wᵀ + b`.
    """
    inner, layer = unwrapped(model), output_layer(model)
    decoder = getattr(inner, "decoder", None)

    def refuse(problem: str) -> None:
        fail(
            f"--criterion {criterion}: found {type(inner).__name__}, {problem}; expected a model "
            "whose decoder ends in "
            "output_layer, a linear layer over the target tokens; fairseq's cross_entropy trains "
            "this one"
        )

    if isinstance(layer, FactorizedSoftmax):
        fail(
            f"--criterion {criterion}: found a model with the factorized output layer, which has "
            "no softmax over all "
            "tokens to work on; expected --criterion f2_softmax, or one of fairseq's, such as "
            "cross_entropy"
        )
    if not has_output_layer(model):
        refuse("whose decoder has another output layer, or none")
    original, inputs = decoder.output_layer, []

    def left_out(features: Tensor) -> Tensor:
        inputs.append(features)
        if decoder not in _compared:
            with torch.no_grad():
                some, bias = features.flatten(0, -2)[None, :1], getattr(layer, "bias", None)
                logits = F.linear(some, layer.weight, None if bias is None else bias.to(some.dtype))
                if not torch.allclose(original(some), logits, rtol=0.01, atol=0.01, equal_nan=True):
                    refuse("whose output_layer is not linear")
            _compared.add(decoder)
        return features

    decoder.output_layer = left_out
    try:
        features = model(**net_input)[0]
    finally:
        del decoder.output_layer
    if (
        len(inputs) != 1
        or features.shape != inputs[0].shape
        or features.data_ptr() != inputs[0].data_ptr()
    ):
        refuse("which returns something else than the output of its output_layer")
    return features, layer.weight, getattr(layer, "bias", None)


def float32_copies(optimizer: Any, weight: nn.Parameter) -> Iterator[Tensor]:
    """Views like `weight` of its float32 copy in fairseq's FP16Optimizer; nothing for other
    optimizers.

    The copies of `fp16_params` are in `fp32_params`: a list, or one flat tensor of all, or such a
    tensor per device.
    """
    parameters = getattr(optimizer, "fp16_params", ())
    position = next(
        (number for number, parameter in enumerate(parameters) if parameter is weight), None
    )
    if position is None or not hasattr(optimizer, "fp32_params"):
        return
    if not optimizer.has_flat_params:
        yield optimizer.fp32_params[position].data
        return
    offset = sum(parameter.numel() for parameter in parameters[:position])
    flat = optimizer.fp32_params
    for copy in flat.values() if isinstance(flat, dict) else [flat]:
        yield copy.data[offset : offset + weight.numel()].view_as(weight)
