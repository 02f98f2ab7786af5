"""The output layer of a fairseq model, `H Wᵀ + b`: where W is, and how its gradient is gated.

A decoder whose forward pass and `output_layer` are fairseq's own ends in `H Wᵀ + b`: its criterion
takes the features H, and no logits are computed. In any other model the multiplication by W is
replaced by `gated_linear`, and all behind it is the model's own.
"""

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any, NamedTuple

from fairseq.models.lstm import LSTMDecoder
from fairseq.models.transformer import TransformerDecoderBase
from torch import Tensor, nn
from torch.nn.utils import parametrize

from ..checkpoints.fairseq_checkpoint import OUTPUT_NAMES
from ..functional import Gates
from ..functional.gated_linear import ReplacedLinear, gated_linear
from ..modules import UnigramLinear
from .features import replaced_output_layer

OWN_METHODS = {"forward", "output_layer", "get_normalized_probs"}
OWN_OUTPUT_LAYERS = (TransformerDecoderBase.output_layer, LSTMDecoder.output_layer)


class NoOutputLayer(Exception):
    """A model has no single output matrix, or uses it otherwise; the message says what was found."""


def unwrapped(model: Any) -> Any:
    """The model itself, without its wrappers for several workers."""
    while hasattr(model, "module"):
        model = model.module
    return model


def output_layer(model: Any) -> nn.Module | None:
    """The module that holds W as its `weight`, of a model, wrapped or not; None if there is none.

    It is the tied input embedding where the decoder has no layer of its own.
    """
    model = unwrapped(model)
    decoder = getattr(model, "decoder", None)
    if getattr(decoder, "adaptive_softmax", None) is not None:
        return None
    for name in OUTPUT_NAMES:  # decoder.NAME.weight, and decoder.embed_out
        path, _, attribute = name.rpartition(".")
        try:
            module = attrgetter(path)(model)
        except AttributeError:
            continue
        if attribute == "weight" and getattr(module, "weight", None) is not None:
            return module
        if attribute != "weight" and getattr(module, attribute, None) is not None:
            return _Holder(module, attribute)
    is_tied = getattr(decoder, "share_input_output_embed", False)
    return decoder.embed_tokens if is_tied else None


class _Holder(nn.Module):
    """Stands for the layer of a W that is an attribute of a decoder."""

    def __init__(self, decoder: nn.Module, name: str) -> None:
        super().__init__()
        self.weight = getattr(decoder, name)


def passes_features(model: Any) -> bool:
    """Are all methods from the features to the log-probabilities, and the layer between, fairseq's
    own, without hooks? What else changes logits, such as an edited fairseq, is compared."""
    model = unwrapped(model)
    decoder, layer = model.decoder, output_layer(model)
    methods = [type(one).forward for one in (model, decoder)]
    methods += [type(one).get_normalized_probs for one in (model, decoder)]
    packages = {method.__module__.partition(".")[0] for method in methods}
    is_changed = any(
        one._forward_hooks or one._forward_pre_hooks or OWN_METHODS & vars(one).keys()
        for one in (model, decoder, layer)
    )
    is_linear = type(layer) in (nn.Linear, nn.Embedding) or isinstance(layer, UnigramLinear)
    has_own_layer = type(decoder).output_layer in OWN_OUTPUT_LAYERS
    is_fairseq = packages <= {"fairseq", "agg_fairseq"} and has_own_layer
    return is_fairseq and is_linear and not is_changed


class Head(NamedTuple):
    """Where the logits of a model come from."""

    decoder: Any
    layer: nn.Module  # that holds W
    passes_features: bool


def loss_of_features(
    model: Any, net_input: dict[str, Any], head: Head, loss: Callable[[Tensor], Any]
) -> Any:
    """Runs a model of `passes_features`, whose output layer is then the `loss` of the features
    (B, T, D): so W is used inside of the model, where DDP expects it."""
    outputs = []

    def output_layer(features: Tensor) -> Tensor:
        outputs.append(loss(features))
        return outputs[-1].loss

    with replaced_output_layer(head.decoder, output_layer):
        value = model(**net_input)[0]
    return outputs[-1]._replace(loss=value)


def gated_log_probs(
    model: Any, net_input: dict[str, Any], layer: nn.Module, target: Tensor, gates: Gates | None
) -> Tensor:
    """The log-probabilities (B, T, V) of a model for targets (B, T), with gates on its W.

    Raises:
        NoOutputLayer: the model does not multiply the features of each target by W.
    """
    is_used = False

    def project(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        nonlocal is_used
        is_used = True
        if input.shape[:-1] != target.shape:
            found = f"{tuple(input.shape)} and {tuple(target.shape)}"
            raise NoOutputLayer(f"whose features do not fit the targets: {found}")
        return gated_linear(input, weight, bias, target, gates)

    with parametrize.cached(), ReplacedLinear(layer, project):
        output = model(**net_input)
        log_probs = unwrapped(model).get_normalized_probs(output, log_probs=True)
    if not is_used:
        raise NoOutputLayer(
            "which does not multiply its features by its output embedding, or does it again in the "
            "backward pass, as checkpoint_wrapper around the decoder or its output layer"
        )
    if log_probs.shape[:-1] != target.shape:
        found = f"{tuple(log_probs.shape)} and {tuple(target.shape)}"
        raise NoOutputLayer(f"whose log-probabilities do not fit the targets: {found}")
    return log_probs


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
