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

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .gated_linear import check_gates, gate_residual_, refuse_second_derivatives
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
    features: Tensor  # (C, D) H, in which the loss may be differentiated


Values = dict[str, Tensor]
"""The values (C,) of a loss at each position, by name; the `losses` are what is differentiated."""
Loss = Callable[[Tensor, Chunk], Values]
"""A loss of logits (C, V). If it has a method `residual_` (see `losses.Likelihood`), that is called
in its place, and returns dL/dlogits as well, in the memory of the logits."""


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
) -> tuple[Tensor, Values]:
    """The sum of a loss of the logits `H Wᵀ + b` over all positions that have a target.

    Equal in value and gradient to `loss(gated_linear(H, W, y, b, gates), …)["losses"].sum()`.
    `backward` may run once, since the graph holds the gradients themselves.

    Args:
        loss: the loss of a chunk of logits, at least float32, such as a `Likelihood`.
        features: (..., D) H, floating point.
        weight: (V, D) W, the output embedding.
        target: (...) y, int64 in [0, V), or `ignore_index`.
        bias: (V,) b, gated like W.
        gates: how much of the gradient each row of W and entry of b receives; None is all of it.
        ignore_index: the target at positions that contribute nothing, whatever their features are.
        bound: of the entries of dL/dlogits, which float16 needs to know; 1 for a likelihood.

    Returns:
        The sum of the losses, a scalar that carries the gradient; and all values, shaped like
        `target`, 0 where there is none.

    Raises:
        ValueError: the shapes do not fit, or `features` are not floating point.
        RuntimeError: a target is out of its range.

    Examples:
        >>> def z_loss(logits, chunk):
        ...     log_z = logits.logsumexp(1)
        ...     return {"losses": log_z - logits.gather(1, chunk.target[:, None])[:, 0] + log_z**2}
        >>> H, W = torch.ones(2, 3), torch.zeros(4, 3, requires_grad=True)
        >>> round(chunked(z_loss, H, W, torch.tensor([1, -100]))[0].item(), 4)  # log 4 + (log 4)²
        3.3081
    """
    check_shapes(features, weight, target, bias, gates)
    y, positions = target.reshape(-1), None
    ignored = y == ignore_index
    y, h = y.masked_fill(ignored, 0), features.reshape(-1, features.size(-1))
    if target.is_cuda:  # where the number of ignored positions is not known
        h = h.masked_fill(ignored[:, None], 0.0)
    else:
        check_range(y, len(weight), ignore_index)
        if ignored.any():
            positions = (~ignored).nonzero().squeeze(1)
            h, y, ignored = (one.index_select(0, positions) for one in (h, y, ignored))
    inputs = h, weight, bias
    wanted = tuple(map(wants_gradient, inputs))
    with torch.no_grad(), torch.autocast(h.device.type, enabled=False):
        values, gradients = _values_and_gradients(
            loss, *inputs, y, ignored, positions, wanted, gates, bound, product_dtype(h)
        )
    total = with_gradients(values["losses"], inputs, gradients, ~ignored)
    for name, value in values.items():
        if positions is not None:
            value = value.new_zeros(target.numel()).index_copy_(0, positions, value)
        values[name] = value.view(target.shape)
    return total, values


def _values_and_gradients(
    loss: Loss,
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    ignored: Tensor,
    positions: Tensor | None,
    wanted: tuple[bool, ...],
    gates: Gates | None,
    bound: Tensor | float,
    dtype: torch.dtype,
) -> tuple[Values, list[Tensor | None]]:
    """The loop over chunks of H (N, D), with W (V, D), b (V,) or None, and y (N,).

    Args:
        positions: (N,) where the positions were among those of the caller; None: there.
        wanted: whose gradients are wanted, of H, W and b.
        dtype: that of the products.

    Returns:
        The values (N,); the gradients of the sum of the `losses` into H, W and b, in float32
        (float64 for float64 features), None where not wanted.
    """
    wide, number = working_dtype(features), len(features)
    # else the rounded numbers are multiplied in float32
    operand = dtype if sums_in_float32(dtype, features.device) else wide
    scale = HALF_SCALE / bound if dtype == torch.float16 else None
    w = aligned(weight.to(dtype).to(operand))
    grad_h, grad_w, grad_b = gradients = [
        None if one is None or not is_wanted else torch.zeros_like(one, dtype=wide)
        for one, is_wanted in zip((features, w, bias), wanted, strict=True)
    ]
    size = -(-number // max(1, -(-number // chunk_rows(weight))))  # of equal chunks
    memory = w.new_empty(size, len(w), dtype=wide)  # C x V, or a little wider
    if positions is None:
        positions = torch.arange(number, device=target.device)
    parts: list[Values] = []
    for start in range(0, max(number, 1), max(size, 1)):
        part = slice(start, start + size)
        chunk = Chunk(positions[part], target[part], ~ignored[part], features[part])
        h = chunk.features.to(dtype).to(operand)  # C x D
        wider = product(h, w.t(), out=memory[: len(h)])
        logits = wider[:, : len(weight)]
        if bias is not None:
            logits.add_(bias.to(wide))
        values, residual, into_features = differentiate(loss, logits, chunk, dtype, scale)
        parts.append(values)
        residual = widened(residual.to(operand), wider.size(1))  # C x V, or a little wider
        if grad_h is not None:
            product(residual, w, out=grad_h[part])
            if into_features is not None:
                grad_h[part].add_(into_features if scale is None else into_features * scale)
        if gates is not None:
            gate_residual_(residual, chunk.target, gates)
        if grad_w is not None:
            add_product_(grad_w, residual.t(), h)
        if grad_b is not None:
            grad_b.add_(residual[:, : len(grad_b)].sum(0, dtype=wide))
    if scale is not None:
        for gradient in gradients:
            if gradient is not None:
                gradient.div_(scale)
    values = {name: torch.cat([values[name] for values in parts]) for name in parts[0]}
    return values, [grad_h, None if grad_w is None else grad_w[: len(weight)], grad_b]


def differentiate(
    loss: Loss, logits: Tensor, chunk: Chunk, dtype: torch.dtype, scale: Tensor | float | None
) -> tuple[Values, Tensor, Tensor | None]:
    """The values of a loss (C,), 0 where there is no target; the gradient of its sum into the
    logits (C, V), times `scale` and in `dtype`; and into the features (C, D) if it depends on
    them."""
    into_features = None
    if hasattr(loss, "residual_"):
        values, residual = loss.residual_(logits, chunk, dtype, scale)
    else:
        leaves = logits.detach().requires_grad_(), chunk.features.detach().requires_grad_()
        with torch.enable_grad():
            values = loss(leaves[0], chunk._replace(features=leaves[1]))
            total = values["losses"].where(chunk.has_target, 0).sum()
        residual, into_features = torch.autograd.grad(total, leaves, allow_unused=True)
        residual = (residual if scale is None else residual * scale).to(dtype)
    values = {name: value.detach().where(chunk.has_target, 0) for name, value in values.items()}
    return values, residual, into_features


def check_shapes(
    features: Tensor, weight: Tensor, target: Tensor, bias: Tensor | None, gates: Gates | None
) -> None:
    """Raises ValueError for shapes and dtypes that would give a wrong loss."""
    if not features.is_floating_point() or target.shape != features.shape[:-1]:
        found = f"{features.dtype} {tuple(features.shape)} and {tuple(target.shape)}"
        raise ValueError(
            f"expected floating-point features (..., D) and target of shape (...), got {found}"
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"expected bias {tuple(weight.shape[:1])}, got {tuple(bias.shape)}")
    check_gates(gates, len(weight))


def check_range(target: Tensor, vocabulary: int, ignore_index: int) -> None:
    """Raises RuntimeError for targets (N,) on a CPU out of [0, V); a GPU checks what it selects by
    them."""
    if target.numel() and not target.is_cuda:
        least, most = map(int, target.aminmax())
        if least < 0 or most >= vocabulary:
            raise RuntimeError(f"expected targets in [0, {vocabulary}) or {ignore_index} (ignored)")


def chunk_rows(weight: Tensor) -> int:
    """The number C of positions in a chunk of logits over W (V, D)."""
    if weight.is_cuda:
        return max(GPU_CHUNK_ROWS, GPU_CHUNK_ELEMENTS // len(weight))
    return max(CHUNK_ROWS, CHUNK_ELEMENTS // len(weight))


def working_dtype(given: Tensor) -> torch.dtype:
    """The dtype of values and gradients: float32, or float64 for a float64 tensor."""
    return torch.float64 if given.dtype == torch.float64 else torch.float32


def product_dtype(features: Tensor) -> torch.dtype:
    """The dtype in which a linear layer multiplies: that of the features, or of autocast."""
    device = features.device.type
    if torch.is_autocast_enabled(device) and features.dtype != torch.float64:
        return torch.get_autocast_dtype(device)
    return features.dtype


def sums_in_float32(dtype: torch.dtype, device: torch.device) -> bool:
    """Can torch sum products of this dtype in float32? Of half precision, on NVIDIA's GPUs."""
    has_it = device.type == "cuda" and torch.version.hip is None
    return has_it or dtype in (torch.float32, torch.float64)


def aligned(weight: Tensor) -> Tensor:
    """W (V, D), in half precision with rows of zeros up to a multiple of 16: otherwise products of
    a GPU are several times slower, and its kernels load single numbers in place of vectors."""
    if weight.dtype in (torch.float32, torch.float64) or len(weight) % 16 == 0:
        return weight
    return F.pad(weight, (0, 0, 0, -len(weight) % 16))


def widened(matrix: Tensor, width: int) -> Tensor:
    """The matrix (C, V) with columns of zeros up to `width`, in its memory if rows are as far from
    each other."""
    rows, columns = matrix.shape
    if columns == width:
        return matrix
    if matrix.stride(0) < width:
        return F.pad(matrix, (0, width - columns))
    wider = matrix.as_strided((rows, width), matrix.stride())
    wider[:, columns:].zero_()
    return wider


def product(left: Tensor, right: Tensor, out: Tensor | None = None) -> Tensor:
    """`left @ right`, that of half precision summed and returned in float32."""
    if left.dtype in (torch.float32, torch.float64):
        return torch.mm(left, right, out=out)
    return torch.mm(left, right, out_dtype=torch.float32, out=out)


def add_product_(total: Tensor, left: Tensor, right: Tensor, alpha: float = 1.0) -> None:
    """`total += alpha · left @ right`, with `total` in float32 or float64."""
    if left.dtype == total.dtype:
        total.addmm_(left, right, alpha=alpha)
    else:
        torch.addmm(total, left, right, alpha=alpha, out_dtype=total.dtype, out=total)


def wants_gradient(tensor: Tensor | None) -> bool:
    """Will a backward pass ask for the gradient of this tensor?"""
    return tensor is not None and tensor.requires_grad and torch.is_grad_enabled()


def with_gradients(
    losses: Tensor,
    inputs: Sequence[Tensor | None],
    gradients: Sequence[Tensor | None],
    has_target: Tensor,
) -> Tensor:
    """The sum of losses (N,), as a function of `inputs` with these gradients, if wanted.

    `backward` multiplies the gradients in their own memory: a second run is a RuntimeError, and so
    are second derivatives. Where no position has a target, (N,) bool, the gradient is 0, also if
    the sum is divided by their number.
    """
    return _WithGradients.apply(losses, gradients, has_target, *inputs)


class _WithGradients(torch.autograd.Function):
    """The sum of losses (N,), and gradients of the shapes of the inputs times that of the sum."""

    @staticmethod
    def forward(ctx: Any, losses: Tensor, gradients: Any, has_target: Any, *inputs: Any) -> Tensor:
        ctx.gradients, ctx.has_any = gradients, has_target.any()
        ctx.dtypes = [None if tensor is None else tensor.dtype for tensor in inputs]
        return losses.sum()

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivatives()
        if ctx.gradients is None:
            raise RuntimeError(
                "backward ran twice over the same loss, whose gradients are used up; compute the "
                "loss again"
            )
        gradients, ctx.gradients = ctx.gradients, None
        found = [gradient for gradient in gradients if gradient is not None]
        factor = grad_loss.where(ctx.has_any, 0)
        # A pass is saved where the factor is 1; but to read it on a GPU is to wait for that.
        if factor.is_cuda or factor.item() != 1:
            torch._foreach_mul_(found, factor)
        results = [
            None if gradient is None else gradient.to(dtype)
            for gradient, dtype in zip(gradients, ctx.dtypes, strict=True)
        ]
        return None, None, None, *results
