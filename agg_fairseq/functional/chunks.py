"""The loss of a linear layer for a chunk of positions at a time, gated as by `gated_linear`.

For each chunk of C positions:

    Z      = H Wᵀ + b                     (C, V) the logits, in float32
    Z      = dL/dlogits                   by autograd of the loss alone, or by its own formula
    dL/dH  = Z W                          not gated
    dL/dW += (G ∘ Z)ᵀ H                   in float32

so that neither the logits nor G ever exist for all N positions. The gradients are formed in the
forward pass: nothing is computed twice, and half precision does not make them underflow before the
loss scale is applied. The cost is that of the three products of any softmax layer, 6·N·V·D
operations, and of one pass of the loss and one of the gates over the logits.

The products take the dtype of the features (under autocast, autocast's) and are summed in float32
(float64 for float64 features). In float16, whose smallest number is above the tail of P, dL/dlogits
is multiplied by up to 2^10 before it is rounded. Nothing makes the host wait for a GPU.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .gated_linear import (
    Rows,
    gate_grad_logits_,
    layer_of_process,
    refuse_second_derivatives,
    whole,
)
from .gates import Gates

CHUNK_ELEMENTS, CHUNK_ROWS = 2**23, 2**7
"""Logits of a chunk on a CPU, 32 MiB in float32; or of so many positions, whichever is more, since
each chunk reads and writes the V·D numbers of dL/dW."""
GPU_CHUNK_ELEMENTS, GPU_CHUNK_ROWS = 2**26, 2**11
"""The same on a GPU, where a byte takes as long as 250 operations."""
HALF_SCALE = 2.0**10  # of dL/dlogits in float16; this leaves room for gates of up to 60


class Chunk(NamedTuple):
    """The positions of a chunk of logits."""

    positions: Tensor  # (C,) int64, where they are in the flattened targets
    target: Tensor  # (C,) y, int64 in [0, V), 0 where there is none
    has_target: Tensor  # (C,) bool; what a loss gives elsewhere is left out
    features: Tensor | None  # (C, D) H, in which the loss may be differentiated; None: not known
    rows: Rows | None = None  # of W, to which the logits belong; None: all


Values = dict[str, Tensor]
"""The values (C,) of a loss at each position, by name; the `losses` are what is differentiated."""
Loss = Callable[[Tensor, Chunk], Values]
"""A loss of logits (C, V). If it has a method `value_and_grad_` (see `losses.SmoothedLikelihood`),
that is called in its place, and returns dL/dlogits as well, in the memory of the logits; where W is
sharded, of those of its rows in this process. Other losses then see the whole logits of a chunk."""


def chunked(
    loss: Loss,
    features: Tensor,
    weight: Tensor,
    target: Tensor,
    *,
    bias: Tensor | None = None,
    gates: Gates | None = None,
    ignore_index: int = -100,
    bound: Tensor | float = 1.0,
    predict: bool = False,
) -> tuple[Tensor, Values]:
    """The sum of a loss of the logits `H Wᵀ + b` over all positions that have a target.

    Equal in value and gradient to `loss(gated_linear(H, W, y, b, gates), …)["losses"].sum()`.
    `backward` may run once, since the graph holds the gradients themselves.

    Args:
        loss: the loss of a chunk of logits, at least float32, such as a `SmoothedLikelihood`.
        features: (..., D) H, floating point.
        weight: (V, D) W, the output embedding; a DTensor as of `gated_linear`, with `features`.
        target: (...) y, int64 in [0, V), or `ignore_index`.
        bias: (V,) b, gated like W.
        gates: how much of the gradient each row of W and entry of b receives; None is all of it.
        ignore_index: the target at positions that contribute nothing, whatever their features are.
        bound: of the entries of dL/dlogits, 1 for a likelihood. With float16 features, a loss that
            exceeds it a few dozen times gives gradients that are not finite.
        predict: also return the arg-max of the logits, as the value `prediction`.

    Returns:
        The sum of the losses, a scalar that carries the gradient; and all values, shaped like
        `target`, 0 where there is none.

    Raises:
        ValueError: the shapes do not fit, `features` are not floating point, or the loss depends on
            other tensors that require a gradient, which would get none.
        RuntimeError: a target is out of its range.

    Examples:
        >>> def z_loss(logits, chunk):
        ...     log_z = logits.logsumexp(1)
        ...     return {"losses": log_z - logits.gather(1, chunk.target[:, None])[:, 0] + log_z**2}
        >>> H, W = torch.ones(2, 3), torch.zeros(4, 3, requires_grad=True)
        >>> round(chunked(z_loss, H, W, torch.tensor([1, -100]))[0].item(), 4)  # log 4 + (log 4)²
        3.3081
    """
    features, weight, bias, rows = layer_of_process(features, weight, bias, target, gates)
    y, has_target, kept = target.reshape(-1), (target != ignore_index).reshape(-1), None
    y, h = y.where(has_target, 0), features.reshape(-1, features.size(-1))
    positions = torch.arange(len(y), device=y.device)
    if target.is_cuda:  # where the number of targets is not known, and what selects checks a range
        h = h.where(has_target[:, None], 0.0)
    else:
        if ((y < 0) | (y >= rows.vocabulary)).any():
            raise RuntimeError(
                f"expected targets in [0, {rows.vocabulary}) or {ignore_index} (ignored)"
            )
        if not has_target.all():
            kept = positions = has_target.nonzero().squeeze(1)
            h, y, has_target = (one.index_select(0, kept) for one in (h, y, has_target))
    inputs = h, weight, bias
    scale = HALF_SCALE / bound if precision(h).dtype == torch.float16 else None
    values, gradients = _values_and_gradients(
        loss, inputs, rows, y, has_target, positions, gates, scale, predict
    )
    total = WithGradients.apply(values["losses"], gradients, has_target, scale, *inputs)
    for name, value in values.items():
        if kept is not None:
            value = value.new_zeros(target.numel()).index_copy_(0, kept, value)
        values[name] = value.view(target.shape)
    return total, values


class Precision(NamedTuple):
    """How a linear layer is multiplied."""

    dtype: torch.dtype  # to which its factors are rounded: that of the features, or of autocast
    wide: torch.dtype  # of logits, values and gradients: float32, or float64 for float64 features
    # in which the rounded factors are multiplied: float32 where torch cannot sum products of half
    # precision in float32, which it can on NVIDIA's GPUs
    operand: torch.dtype
    sums: dict[str, Any]  # for `torch.mm` and `torch.addmm`, to return `wide`


def precision(features: Tensor) -> Precision:
    """The precision of a linear layer of these features."""
    device, dtype = features.device.type, features.dtype
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    if torch.is_autocast_enabled(device) and dtype != torch.float64:
        dtype = torch.get_autocast_dtype(device)
    sums_in_float32 = dtype == wide or (device == "cuda" and torch.version.hip is None)
    operand = dtype if sums_in_float32 else wide
    return Precision(dtype, wide, operand, {} if operand == wide else {"out_dtype": wide})


def working_dtype(given: Tensor) -> torch.dtype:
    """The dtype of values and gradients: float32, or float64 for a float64 tensor."""
    return torch.float64 if given.dtype == torch.float64 else torch.float32


def _values_and_gradients(
    loss: Loss,
    inputs: tuple[Tensor, Tensor, Tensor | None],
    rows: Rows,
    target: Tensor,
    has_target: Tensor,
    positions: Tensor,
    gates: Gates | None,
    scale: Tensor | float | None,
    predict: bool,
) -> tuple[Values, list[Tensor | None]]:
    """The loop over chunks, of H (N, D), `rows` of W (V, D), and of b (V,) or None, with targets
    y (N,).

    `positions` (N,) are their places in the flattened targets. Returns the values (N,), and the
    gradients of the sum of the `losses` into H, W and b, times `scale`, None where not wanted.
    """
    (features, weight, bias), (number, columns) = inputs, (len(target), len(inputs[1]))
    dtype, wide, operand, sums = precision(features)
    wanted = [one is not None and one.requires_grad and torch.is_grad_enabled() for one in inputs]
    parts: list[Values] = []
    with torch.no_grad(), torch.autocast(features.device.type, enabled=False):
        w = weight.to(dtype).to(operand)
        if dtype != wide and columns % 16:
            # otherwise products of a GPU are several times slower, and its kernels load single
            # numbers in place of vectors
            w = F.pad(w, (0, 0, 0, -columns % 16))
        allocators = torch.empty_like, torch.empty_like, torch.zeros_like
        grad_h, grad_w, grad_b = [
            new(one, dtype=wide) if is_wanted and one is not None else None
            for new, one, is_wanted in zip(allocators, (features, w, bias), wanted, strict=True)
        ]
        least, elements = CHUNK_ROWS, CHUNK_ELEMENTS
        if weight.is_cuda:
            least, elements = GPU_CHUNK_ROWS, GPU_CHUNK_ELEMENTS
        most = max(least, elements // rows.vocabulary)  # the same in all processes
        size = -(-number // max(1, -(-number // most)))  # of equal chunks
        memory = w.new_empty(size, len(w), dtype=wide)  # C x V, or a little wider
        for start in range(0, max(number, 1), max(size, 1)):
            part = slice(start, start + size)
            chunk = Chunk(positions[part], target[part], has_target[part], features[part], rows)
            h = features[part].to(dtype).to(operand)  # C x D
            wider = torch.mm(h, w.t(), out=memory[: len(h)], **sums)
            logits, grad_chunk = wider[:, :columns], None
            if bias is not None:
                logits.add_(bias.to(wide))
            prediction = {"prediction": whole(rows.join(logits).argmax(1))} if predict else {}
            if hasattr(loss, "value_and_grad_"):
                values, grad_logits, grad_chunk = loss.value_and_grad_(logits, chunk, dtype, scale)
            else:
                given = loss, logits, chunk, scale
                values, grad_logits, grad_chunk = differentiate(*given, is_wanted=any(wanted))
            parts.append(values | prediction)
            grad_logits = grad_logits.to(dtype).to(operand)
            if grad_logits.size(1) < wider.size(1):
                grad_logits = widened(grad_logits, wider.size(1))
            if grad_h is not None:
                torch.mm(grad_logits, w, out=grad_h[part], **sums)
                if grad_chunk is not None:
                    grad_h[part].add_(grad_chunk)
            if gates is not None:
                gate_grad_logits_(grad_logits[:, :columns], chunk.target, gates, rows.first)
            if grad_w is not None:
                beta = float(start > 0)  # the first chunk does not add
                torch.addmm(grad_w, grad_logits.t(), h, beta=beta, out=grad_w, **sums)
            if grad_b is not None:
                grad_b.add_(grad_logits[:, :columns].sum(0, dtype=wide))
        values = {
            name: torch.cat([values[name] for values in parts]).where(has_target, 0)
            for name in parts[0]
        }
    return values, [grad_h, None if grad_w is None else grad_w[:columns], grad_b]


def differentiate(
    loss: Loss, logits: Tensor, chunk: Chunk, scale: Tensor | float | None, *, is_wanted: bool
) -> tuple[Values, Tensor, Tensor | None]:
    """The values of a loss (C,), and the gradient, if it is wanted, of its sum over positions that
    have a target, times `scale`: into the logits (C, V), and into the features (C, D) if it depends
    on them.

    ValueError if it depends on other tensors that require a gradient.
    """
    rows, columns = chunk.rows or Rows(0, logits.size(1)), logits.size(1)
    logits = whole(rows.join(logits))
    if not is_wanted:
        values = {name: value.clone() for name, value in loss(logits, chunk).items()}
        return values, logits[:, :columns], None
    assert chunk.features is not None
    leaves = logits.detach().requires_grad_(), chunk.features.detach().requires_grad_()
    with torch.enable_grad():
        values = loss(leaves[0], chunk._replace(features=leaves[1]))
        total = values["losses"].where(chunk.has_target, 0).sum()
        total = total if scale is None else total * scale
    for tensor in leaves_of_graph(total):
        if tensor is not leaves[0] and tensor is not leaves[1]:
            raise ValueError(
                f"found a loss that depends on a tensor {(*tensor.shape,)} that requires a gradient, "
                "such as a learned temperature, which would get none; detach it, or use "
                "gated_linear in place of chunked"
            )
    grad_logits, grad_chunk = torch.autograd.grad(total, leaves, allow_unused=True)
    if rows.mesh is not None:
        grad_logits = grad_logits[:, rows.first : rows.first + columns].contiguous()
    # copies, since the next chunk takes the memory of the logits
    values = {name: value.detach().clone() for name, value in values.items()}
    return values, grad_logits, None if rows.first else grad_chunk  # added to the sum once


def leaves_of_graph(result: Tensor) -> Iterator[Tensor]:
    """The tensors that require a gradient, and that autograd leads to from a result."""
    waiting, seen = [result.grad_fn], set()
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            if hasattr(node, "variable"):
                yield node.variable
            waiting += [function for function, _ in node.next_functions]


def widened(matrix: Tensor, width: int) -> Tensor:
    """The matrix (C, V) with columns of zeros up to `width`, in its memory if rows are as far from
    each other."""
    rows, columns = matrix.shape
    if columns == width:
        return matrix
    if rows < 2 or matrix.stride(0) < width:  # the stride of a single row is any number
        return F.pad(matrix, (0, width - columns))
    wider = matrix.as_strided((rows, width), matrix.stride())
    wider[:, columns:].zero_()
    return wider


class WithGradients(torch.autograd.Function):
    """The sum of losses (N,), as a function of inputs with these gradients, None where not wanted.

    `backward` multiplies the gradients in their own memory: a second run is a RuntimeError, and so
    are second derivatives. Where no position has a target, (N,) bool, the gradient is 0, also if
    the sum is divided by their number. `scale`, if any, is that of the gradients.
    """

    @staticmethod
    def forward(
        ctx: Any, losses: Tensor, gradients: Any, has_target: Any, scale: Any, *inputs: Any
    ) -> Tensor:
        """The sum, a scalar, of losses (N,) in nats."""
        ctx.gradients, ctx.has_any, ctx.scale = gradients, has_target.any(), scale
        ctx.dtypes = [None if tensor is None else tensor.dtype for tensor in inputs]
        return losses.sum()

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients, in the shapes and dtypes of the inputs."""
        refuse_second_derivatives()
        if ctx.gradients is None:
            raise RuntimeError(
                "backward ran twice over the same loss, whose gradients are used up; compute the "
                "loss again"
            )
        gradients, ctx.gradients = ctx.gradients, None
        found = [gradient for gradient in gradients if gradient is not None]
        factor = grad_loss.where(ctx.has_any, 0)
        factor = factor if ctx.scale is None else factor / ctx.scale
        # A pass is saved where the factor is 1; but to read it on a GPU is to wait for that.
        if factor.is_cuda or factor.item() != 1:
            torch._foreach_mul_(found, factor)
        results = [
            None if gradient is None else gradient.to(dtype)
            for gradient, dtype in zip(gradients, ctx.dtypes, strict=True)
        ]
        return None, None, None, None, *results
