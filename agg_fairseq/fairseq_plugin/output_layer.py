"""The output layer of a fairseq model, `H Wᵀ + b`: W, and the features H that it is applied to.

While the forward pass of a criterion runs, the `output_layer` of the decoder instance returns its
input, so that no logits are computed.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import torch
from fairseq.models import FairseqDecoder
from torch import Tensor, nn

from ..checkpoints.fairseq_checkpoint import OUTPUT_NAMES
from ..errors import fail
from ..f2 import FactorizedSoftmax
from ..modules import UnigramLinear
from ..modules.linear_logits import LinearLogits, NotLinear, leaves, linear_logits


def unwrapped(model: Any) -> Any:
    """The model itself, without its wrappers for several workers."""
    while hasattr(model, "module"):
        model = model.module
    return model


def output_layer(model: Any) -> nn.Module | None:
    """The module that holds W as its `weight`, of a model, wrapped or not; None if there is none.

    It is the tied input embedding where the decoder has no layer of its own.
    """
    decoder = getattr(unwrapped(model), "decoder", None)
    for name in OUTPUT_NAMES:  # decoder.NAME.weight
        layer = getattr(decoder, name.split(".")[1], None)
        if getattr(layer, "weight", None) is not None:
            return layer
    return decoder.embed_tokens if getattr(decoder, "share_input_output_embed", False) else None


def has_output_layer(model: Any) -> bool:
    """Does the decoder pass its features to a linear `output_layer`? Not in fconv and lightconv."""
    decoder = getattr(unwrapped(model), "decoder", None)
    method = getattr(type(decoder), "output_layer", FairseqDecoder.output_layer)
    if method is FairseqDecoder.output_layer:
        return False
    if getattr(decoder, "adaptive_softmax", None) is not None:
        return False
    layer = output_layer(model)
    return type(layer) in (nn.Linear, nn.Embedding) or isinstance(layer, UnigramLinear)


def features_of(
    model: Any, net_input: dict[str, Any], criterion: str
) -> tuple[Tensor, LinearLogits]:
    """Runs a model up to its output layer: H (B, T, D), and what the layer makes of it.

    The model may be a wrapper for several workers. One line and status 2, which names the
    criterion, for a model whose logits are no `LinearLogits`.
    """
    layer = output_layer(model)
    if isinstance(layer, FactorizedSoftmax):
        fail(
            f"--criterion {criterion}: found a model with the factorized output layer, which has "
            "no softmax over all tokens to work on; expected --criterion f2_softmax, or one of "
            "fairseq's, such as cross_entropy"
        )
    if not has_output_layer(model):
        _refuse(model, criterion, "whose decoder has another output layer, or none")
    parameters = leaves(layer.weight, getattr(layer, "bias", None))
    features, inner = without_logits(model, net_input, parameters, criterion), unwrapped(model)
    try:
        return features, linear_logits(inner.decoder.output_layer, layer, features, inner)
    except NotLinear as problem:
        _refuse(model, criterion, f"whose output_layer {problem}")


@contextmanager
def replaced_output_layer(decoder: Any, function: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Lets a decoder call `function` as its `output_layer`, if it has one."""
    if not hasattr(decoder, "output_layer"):
        yield
        return
    decoder.output_layer = function
    try:
        yield
    finally:
        del decoder.output_layer  # so that the method of the class is found again


def without_logits(
    model: Any, net_input: dict[str, Any], parameters: dict[int, Tensor], criterion: str
) -> Tensor:
    """Runs a model up to its output layer: H (B, T, D).

    For autograd, H depends on the `parameters` of the layer, so that DDP does not take them for
    unused. One line and status 2 if the model returns anything else than its output layer did.
    """
    decoder, returned = unwrapped(model).decoder, []

    def keep_features(features: Tensor) -> Tensor:
        found = _Connected.apply(features, *parameters.values())
        returned.append((found, found._version))
        return found

    with replaced_output_layer(decoder, keep_features):
        output = model(**net_input)[0]
    is_same = len(returned) == 1
    for features, version in returned:
        is_same &= output is features or _is_copy_of_ddp(output, features)
        is_same &= features._version == version
    if not is_same:
        problem = "which returns something else than the output of its output_layer"
        _refuse(model, criterion, problem)
    return output


def _refuse(model: Any, criterion: str, problem: str) -> NoReturn:
    fail(
        f"--criterion {criterion}: found {type(unwrapped(model)).__name__}, {problem}; expected a "
        "model whose decoder ends in output_layer, a linear layer over the target tokens; "
        "fairseq's cross_entropy trains this one"
    )


class _Connected(torch.autograd.Function):
    """Features that depend for autograd on parameters, which get no gradient from it."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, *parameters: Tensor) -> Tensor:
        ctx.number = len(parameters)
        return features.detach()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return gradient, *[None] * ctx.number


def _is_copy_of_ddp(output: Tensor, features: Tensor) -> bool:
    """Is this the clone that DDP makes of its module's output?"""
    if output.grad_fn is None:
        return features.grad_fn is None and torch.equal(output, features)
    origins = {node for node, _ in output.grad_fn.next_functions}
    return type(output.grad_fn).__name__ == "_DDPSinkBackward" and features.grad_fn in origins


def float32_copies(optimizer: Any, weight: nn.Parameter) -> Iterator[Tensor]:
    """Views like `weight` of its float32 copies in fairseq's FP16Optimizer, if it is one.

    They are in `fp32_params`: a list, or one flat tensor of all, or such a tensor per device.
    """
    parameters = getattr(optimizer, "fp16_params", ())
    positions = [number for number, one in enumerate(parameters) if one is weight]
    if not positions or not hasattr(optimizer, "fp32_params"):
        return
    [position] = positions
    if not optimizer.has_flat_params:
        yield optimizer.fp32_params[position].data
        return
    offset = sum(parameter.numel() for parameter in parameters[:position])
    flat = optimizer.fp32_params
    for copy in flat.values() if isinstance(flat, dict) else [flat]:
        yield copy.data[offset : offset + weight.numel()].view_as(weight)
