"""The linear layer that ends a fairseq model: found by what the model computes, and left out where features are wanted.

Models name this layer, call it and pass options to it in different ways. What they have in common is one call of
`torch.nn.functional.linear(features, W, b)`, by an `nn.Linear` or by the decoder itself (as LSTMs with tied weights
do). That function is replaced while the model's own forward runs:

- once per model, to find W. Every call whose weight has V rows returns, at each position, the numbers from -100 to 100
  instead of logits, as a new leaf of the autograd graph. W is the weight of the call whose leaf the log-probabilities
  depend on. If they depend on any other leaf, or differ from the log-softmax of these numbers, the model does something
  with its logits (an adaptive softmax, a mixture, a scale, a cap, a bias added later) that a loss formed from features,
  W and b would miss. Such a model is refused.
- in each forward pass of a criterion, to leave the layer out: the call whose weight is W returns its input. So no
  logits are computed, and the features, W and b are those that the model would have multiplied.
"""

import contextlib
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..errors import fail, first_line
from ..f2 import FactorizedSoftmax
from ..modules import UnigramLinear


class OutputLayer(NamedTuple):
    """Where a model keeps W: `getattr(module, name)`, which weight normalization computes anew for each call."""

    module: nn.Module
    name: str

    @property
    def weight(self) -> Tensor:
        return getattr(self.module, self.name)


class LayerInput(NamedTuple):
    """What a model passes to its output layer."""

    features: Tensor  # (B, T, D) H
    weight: Tensor  # (V, D) W
    bias: Tensor | None  # (V,) b, if the layer has one


_layer_of: weakref.WeakKeyDictionary[nn.Module, OutputLayer] = weakref.WeakKeyDictionary()


def output_layer(model: Any, net_input: dict[str, Any], vocabularies: set[int], criterion: str) -> OutputLayer:
    """The output layer of a model, or one line and status 2, which names the criterion that asks.

    The first call for a model runs its forward twice without gradients, in evaluation mode and without logits. This
    changes neither the random state nor what the model keeps between calls.

    Args:
        model: a fairseq model, as the trainer passes it, wrapped or not.
        net_input: the keyword arguments of its forward, from a batch.
        vocabularies: sizes of the target dictionaries of the task; the layer has as many rows as one of them.
        criterion: name of the criterion that asks, for the error.
    """
    inner = unwrapped(model)
    if inner in _layer_of:
        return _layer_of[inner]

    def refuse(problem: str) -> None:
        sizes = " or ".join(map(str, sorted(vocabularies)))
        fail(
            f"--criterion {criterion}: found {problem}; expected a model whose logits are the output of one linear "
            f"layer over the {sizes} target tokens"
        )

    name, decoder = type(inner).__name__, getattr(inner, "decoder", None)
    if factorized_layer(inner) is not None:
        fail(
            f"--criterion {criterion}: found a model with the factorized output layer, which has no softmax over all "
            "tokens to work on; expected --criterion f2_softmax, or one of fairseq's, such as cross_entropy"
        )
    if getattr(decoder, "adaptive_softmax", None) is not None:
        refuse(f"an adaptive softmax in {type(decoder).__name__}")
    candidates: list[tuple[Tensor, Tensor]] = []  # the leaf that took the place of the logits; the weight

    def with_known_logits(linear: Callable[..., Tensor], features: Tensor, weight: Tensor, bias: Any = None) -> Tensor:
        if len(weight) not in vocabularies:
            return linear(features, weight, bias)
        torch.set_grad_enabled(True)  # from here on, so that the graph has nothing of what comes before
        logits = torch.linspace(-100, 100, len(weight), dtype=weight.dtype, device=weight.device)
        leaf = logits.requires_grad_()
        candidates.append((leaf, weight))
        # Expanding takes no memory of size (N, V). In a small model, layers inside may have V rows too, and the code
        # after them may need a tensor with memory of its own.
        expanded = leaf.clone().expand(*features.shape[:-1], -1)
        return expanded.contiguous() if expanded.numel() < 2**20 else expanded

    try:
        with _undisturbed(inner), _replaced_linear(with_known_logits):
            net_output = inner(**net_input)
            if not candidates:
                refuse(f"{name}, which calls no linear layer of that size")
            first = (net_output[0][:1, :1], *net_output[1:])
            log_probs = inner.get_normalized_probs(first, log_probs=True).flatten()
            leaves = _leaves(log_probs)
            used = [(leaf, weight) for leaf, weight in candidates if any(leaf is other for other in leaves)]
            if len(leaves) != 1 or len(used) != 1:
                refuse(f"{name}, whose log-probabilities do not come from the output of one linear layer alone")
            leaf, weight = used[0]
            expected = leaf.float().log_softmax(0)
            if log_probs.shape != expected.shape or not torch.allclose(log_probs.float(), expected, atol=1e-3):
                refuse(f"{name}, which changes its logits after its last linear layer (a scale, a cap, a mask?)")
            places = ((module, vars(module) | module._parameters) for module in inner.modules())
            layers = [OutputLayer(module, key) for module, held in places for key in held if held[key] is weight]
            if not layers:
                refuse(f"{name}, which computes the weight of its output layer anew in each call")
            layer = next((layer for layer in layers if isinstance(layer.module, UnigramLinear)), layers[0])
        with _undisturbed(inner):
            shape = features_of(inner, net_input, layer).features.shape
            if shape != (*net_output[0].shape[:-1], weight.size(1)):
                raise ValueError(f"features of shape {tuple(shape)}")
    except Exception as error:  # whatever another forward raises that gets a batch alone, or features for logits
        if isinstance(error, IndexError) or "out of memory" in str(error):  # a token beyond W; the trainer recovers
            raise
        refuse(f"{name}, whose output layer cannot be left out ({first_line(error)})")
    _layer_of[inner] = layer
    return layer


def features_of(model: Any, net_input: dict[str, Any], layer: OutputLayer) -> LayerInput:
    """Runs a model up to its output layer; one line and status 2 if it does not call the layer exactly once.

    The model is called as the trainer passes it, so that a wrapper for several workers takes part. The features have
    the layout in which the model returns its logits.
    """
    calls: list[tuple[torch.dtype, Tensor, Tensor | None]] = []

    def left_out(linear: Callable[..., Tensor], features: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        if weight is not layer.weight:
            return linear(features, weight, bias)
        calls.append((features.dtype, weight, bias))
        return features

    with _replaced_linear(left_out):
        features = model(**net_input)[0]
    if len(calls) != 1:
        fail(f"found that {type(unwrapped(model)).__name__} applied its output layer {len(calls)} times; expected once")
    dtype, weight, bias = calls[0]
    if isinstance(layer.module, UnigramLinear):
        bias = layer.module.bias  # in float32, where the call has it in half precision
    return LayerInput(features.to(dtype), weight, bias)  # a model may cast its logits


def trained_embeddings(model: Any) -> list[nn.Parameter]:
    """Each W (V, D) of a model, wrapped or not, and of the models in it, that `output_layer` has found; none twice."""
    layers = (_layer_of[module] for module in unwrapped(model).modules() if module in _layer_of)
    return list({id(layer.weight): layer.weight for layer in layers}.values())


@contextlib.contextmanager
def _replaced_linear(replacement: Callable[..., Tensor]) -> Iterator[None]:
    """Within, `functional.linear` is `replacement`, which gets the original as its first argument."""
    original = functional.linear
    functional.linear = lambda input, weight, bias=None: replacement(original, input, weight, bias)
    try:
        yield
    finally:
        functional.linear = original


@contextlib.contextmanager
def _undisturbed(model: nn.Module) -> Iterator[None]:
    """Within, evaluation mode without gradients; then the random state and all attributes of modules are put back.

    Among these are the modes, and the state that a recurrent model carries to its next batch, also in a dict or list.
    """
    devices = {parameter.get_device() for parameter in model.parameters() if parameter.is_cuda}
    attributes = [(vars(module), *vars(module).values()) for module in model.modules()]
    contents_before = [(held, held.copy()) for values in attributes for held in values if type(held) in (dict, list)]
    with torch.random.fork_rng(devices), torch.no_grad():
        try:
            model.eval()
            yield
        finally:
            for held, contents in contents_before:
                held.clear()
                held.update(contents) if isinstance(held, dict) else held.extend(contents)


def _leaves(tensor: Tensor) -> list[Tensor]:
    nodes, seen, leaves = [tensor.grad_fn], {None}, []
    while nodes:
        node = nodes.pop()
        if node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            leaves.append(node.variable)
        nodes.extend(following for following, _ in node.next_functions)
    return leaves


def factorized_layer(model: nn.Module) -> FactorizedSoftmax | None:
    """The factorized output layer of a fairseq model, None if it has another one."""
    layer = getattr(getattr(model, "decoder", None), "output_projection", None)
    return layer if isinstance(layer, FactorizedSoftmax) else None


def unwrapped(model: Any) -> Any:
    """The model itself, without its wrappers for several workers."""
    while hasattr(model, "module"):
        model = model.module
    return model


def float32_copies(optimizer: Any, weight: nn.Parameter) -> Iterator[Tensor]:
    """Views like `weight` of its float32 copy in fairseq's FP16Optimizer; nothing for other optimizers.

    The copies of `fp16_params` are in `fp32_params`: a list, or one flat tensor of all, or such a tensor per device.
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
