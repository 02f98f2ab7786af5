"""Finds out what an output layer computes, by random features and by autograd."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

LARGEST = (3.0, 2.0**20, 0.1, 2.0**8, 2.0**4, 2.0**-6, 2.0**12, 30.0)
"""The largest entry of `H Wᵀ` at each position of the random features."""
LARGEST_HALF = 2.0**12  # of them in float16, which leaves room for a scale up to 16


ScaleAndCap = tuple[float, float | None]
"""The s and c of logits `s z`, or `c tanh(s z / c)`."""


class NotLinear(Exception):
    """An output layer does more than `s (H Wᵀ + b)`; the message ends a sentence that begins with
    it."""


class LinearLogits(NamedTuple):
    """Logits `z = s (H Wᵀ + b)`, or `c tanh(z / c)` with a soft cap c."""

    weight: Tensor  # (V, D) W
    bias: Tensor | None  # (V,) b
    scale: float = 1.0  # s, not 0
    softcap: float | None = None  # c > 0


_answers: WeakKeyDictionary[nn.Module, dict[bool, tuple[Any, ScaleAndCap]]] = WeakKeyDictionary()
"""By output layer, and training or validation: its fingerprint when it was asked, and s and c."""


def linear_logits(
    logits_of: Callable[[Tensor], Tensor],
    layer: nn.Linear | nn.Embedding,
    like: Tensor,
    model: nn.Module,
) -> LinearLogits:
    """W, b, s and c with which an output layer computes its logits.

    The layer is given random features of several positions and sizes. Its result has to be
    `s (H Wᵀ + b)`, with a soft cap or without, within the rounding of the dtypes, and to depend on
    W and b alone, as autograd says. It is asked once in training and once in validation, and again
    when a parameter, a number or a buffer has changed in the layer or in what `logits_of` is a
    method of. A W of zeros, or one in float16, is replaced meanwhile, and put back.

    Args:
        logits_of: the layer, (…, D) to (…, V): a module or a method.
        layer: what holds W (V, D) as its `weight`, and maybe b (V,) as its `bias`.
        like: features, for their dtype and device.
        model: names the parameters in errors.

    Raises:
        NotLinear: the layer computes anything else.
    """
    weight, bias = layer.weight, getattr(layer, "bias", None)
    owner = getattr(logits_of, "__self__", layer)
    fingerprint = (like.dtype, *_contents(owner), *_contents(*layer.modules()))
    answers = _answers.setdefault(layer, {})
    known, answer = answers.get(layer.training, (None, (1.0, None)))
    if known != fingerprint:
        # so that gradient checkpointing, which counts what is saved, does not see it
        hooks = torch.autograd.graph.saved_tensors_hooks(lambda saved: saved, lambda saved: saved)
        with torch.inference_mode(False), torch.enable_grad(), hooks:
            # b anew, since one that was computed without gradients has no parameters
            answer = _ask(logits_of, weight, getattr(layer, "bias", None), like, model)
        answers[layer.training] = fingerprint, answer
    return LinearLogits(weight, bias, *answer)


def leaves(*tensors: Tensor | None) -> dict[int, Tensor]:
    """The tensors, mostly parameters, that autograd would give a gradient to, by `id`."""
    found, seen = {}, set()
    waiting: list[torch.autograd.graph.Node | None] = []
    for tensor in tensors:
        if tensor is not None and tensor.grad_fn is not None:
            waiting.append(tensor.grad_fn)
        elif tensor is not None and tensor.requires_grad:
            found[id(tensor)] = tensor
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found[id(node.variable)] = node.variable
        waiting += [function for function, _ in node.next_functions]
    return found


def name_of(parameter: Tensor, model: nn.Module) -> str:
    """The name of a parameter in a model; its shape if it is none of the model's."""
    named = model.named_parameters()
    names = (name for name, candidate in named if candidate is parameter)
    return next(names, f"a parameter of shape {tuple(parameter.shape)}")


def _contents(*modules: nn.Module) -> list[Any]:
    """What modules compute with, cheap to compare: numbers, parameters, versions of buffers."""
    found: list[Any] = []
    for module in modules:
        values = vars(module).items()
        found += [(name, value) for name, value in values if isinstance(value, int | float | str)]
        parameters = module.parameters(recurse=False)
        found += [(id(parameter), parameter.requires_grad) for parameter in parameters]
        tensors = [value for _, value in values if isinstance(value, Tensor)]
        # larger ones may be made anew in each step, as a mask or a normalized W
        tensors = [*module.buffers(recurse=False), *(one for one in tensors if one.numel() == 1)]
        found += [(id(tensor), tensor._version) for tensor in tensors]
    return found


def _ask(
    logits_of: Callable[[Tensor], Tensor],
    weight: Tensor,
    bias: Tensor | None,
    like: Tensor,
    model: nn.Module,
) -> ScaleAndCap:
    """The s and c of `linear_logits`."""
    device, dtypes = like.device.type, {like.dtype, weight.dtype}
    is_mixed = torch.is_autocast_enabled(device)
    if is_mixed:
        dtypes.add(torch.get_autocast_dtype(device))
    half, before = torch.float16 in dtypes, None
    # In place of a W of zeros, or of numbers that may be too small for float16, another one tells
    # what the layer does.
    if not weight.any() or (half and isinstance(weight, nn.Parameter)):
        before, generator = weight.detach().clone(), torch.Generator().manual_seed(1)
        rows = torch.randn(min(len(weight), 2**12), weight.size(1), generator=generator)
        times = -(-len(weight) // len(rows))
        weight.data.copy_(rows.to(weight).repeat(times, 1)[: len(weight)])
    try:
        features, products = _random_features(weight, like, LARGEST_HALF if half else math.inf)
        norms = torch.linalg.vector_norm(weight.detach(), dim=1, dtype=torch.float64)  # V
        with torch.autocast(device, enabled=is_mixed, cache_enabled=False):  # of this W
            logits = logits_of(features[None])  # 1 x T x V
    finally:
        if before is not None:
            weight.data.copy_(before)
    used, known = leaves(logits), leaves(weight, bias)
    for parameter in used.keys() - known.keys():
        raise NotLinear(f"depends on {name_of(used[parameter], model)} beside its weight and bias")
    for parameter in known.keys() - used.keys():
        raise NotLinear(f"does not depend on {name_of(known[parameter], model)}")
    problem = NotLinear("is not s (H Wᵀ + b), with a soft cap or without")
    z = logits.detach()[0].double()  # T x V
    x = products if bias is None else products + bias.detach().double()
    if not x.isfinite().all():
        raise NotLinear("has NaN or infinite weights: the model has diverged")
    if z.shape != x.shape or not z.isfinite().all():
        raise problem

    # Each product rounds with a relative error of ε, and sums D of them in at least float32.
    dtypes.add(logits.dtype)
    if like.is_cuda and torch.backends.cuda.matmul.allow_tf32:
        dtypes.add(torch.float16)  # of as many digits
    error = max(torch.finfo(dtype).eps for dtype in dtypes)
    error = 8 * error + 4 * math.sqrt(weight.size(1)) * min(error, torch.finfo(torch.float32).eps)
    size = features.double().square().mean(1, keepdim=True).sqrt() * norms + x.abs()  # T x V
    size = size if bias is None else size + bias.detach().double().abs()

    scale = _quotient(z, x)
    if scale and ((z - scale * x).abs() <= error * abs(scale) * size).all():
        return 1.0 if abs(scale - 1) < error / 16 else scale, None
    softcap = z.abs()[x.abs() >= 0.5 * x.abs().max()].median().item()
    if softcap:
        # where the cap leaves digits, and x is no mere rounding of a sum
        inside = (z.abs() < 0.9 * softcap) & (x.abs() > 4 * error * size)
        scale = _quotient(softcap * torch.atanh(z[inside] / softcap), x[inside])
        inexact = error * abs(scale) * size  # of s x
        rounded = error * (abs(scale) * size).clamp(max=softcap)  # of z
        lowest = softcap * torch.tanh((scale * x - inexact) / softcap) - rounded
        highest = softcap * torch.tanh((scale * x + inexact) / softcap) + rounded
        if scale and ((lowest <= z) & (z <= highest)).all():
            return 1.0 if abs(scale - 1) < error / 16 else scale, softcap
    raise problem


@torch.no_grad()
def _random_features(weight: Tensor, like: Tensor, limit: float) -> tuple[Tensor, Tensor]:
    """Features H (T, D), and `H Wᵀ` (T, V) in float64, of the sizes `LARGEST`."""
    generator = torch.Generator().manual_seed(0)
    wide = torch.promote_types(weight.dtype, torch.float32)
    with torch.autocast(like.device.type, enabled=False):
        columns = weight.to(like.device, wide).t()  # D x V
        features = torch.randn(len(LARGEST), weight.size(1), generator=generator).to(columns)
        largest = torch.tensor(LARGEST).clamp(max=limit).to(columns)
        features *= (largest / (features @ columns).abs().amax(1))[:, None]
        features = features.to(like.dtype)
        return features, (features.to(wide) @ columns).double()


def _quotient(z: Tensor, x: Tensor) -> float:
    """The s of the least squares of `z − s x`; 0 if there is none."""
    squares = (x * x).sum().item()
    return (z * x).sum().item() / squares if squares else 0.0
