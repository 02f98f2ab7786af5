"""Fused gated cross-entropy, for GPUs: half-precision products, and everything between them in one kernel.

It computes what the chunked implementation computes, and differs in how:

- The three products take the dtype of the features (under autocast, autocast's) and sum in float32, since a GPU
  multiplies half precision fastest. Logits and residuals P − Q are rounded to that dtype between them, as fairseq's
  are. In float16 the residuals are multiplied by 2^10 first, because the tail of P lies below float16's smallest
  number. That leaves room for gates of up to 60; the weights of positions are divided by their maximum and multiplied
  back at the end.
- Positions are not sorted into common, rare and padding, because counting them would mean waiting for the device. The
  kernel gates entry by entry and writes the residual twice: as it is for the features, and gated for W and b.
- A chunk is as large as memory allows. Each chunk adds its part to dL/dW, (V, D) in float32, and that traffic of 8·V·D
  bytes should be small beside the 6·C·V·D operations of the chunk's products.

Beyond inputs and gradients it holds two chunks of logits (one without gates), the gradients in float32, and under
autocast W in half precision. Importing this module needs Triton.
"""

import torch
from torch import Tensor

from . import triton_rows
from .chunked import ChunkedLoss

CHUNK_BYTES = 2**28  # size of one buffer of logits
HALF_SCALE = 2.0**10  # what residuals are multiplied by before they are rounded to float16
WIDE_PRODUCTS_SINCE = (2, 10)
"""First version of torch whose `addmm` adds a product of half-precision matrices to a float32 sum."""


class FusedLoss(ChunkedLoss):
    """One forward pass over chunks of consecutive positions. Nothing in it waits for the device."""

    @staticmethod
    def product_dtype(features: Tensor) -> torch.dtype:
        """The dtype in which a linear layer would multiply the features."""
        dtype = autocast_dtype()
        return features.dtype if dtype is None or features.dtype == torch.float64 else dtype

    def _run(self) -> None:
        gates, weights, largest = self.options.gates, self.options.position_weight, None
        if weights is not None and len(weights):
            # Residuals have little room above 1 in float16, so no position weighs more than 1 until the very end.
            largest = weights.amax().clamp(min=1).to(self.outputs.losses.dtype)  # a scalar, which stays on the device
            weights = weights / largest
        operands = triton_rows.Operands(self.target, self.bias, weights, gates, len(self.weight))

        positions = len(self.target)
        is_wanted = self.grad_weight is not None or self.grad_bias is not None
        chunk_rows = self._chunk_rows(positions, CHUNK_BYTES // self.weight.element_size())
        logits = self.weight.new_empty(chunk_rows, operands.width)  # C x width
        gated = torch.empty_like(logits) if gates is not None and is_wanted else None
        for start in range(0, positions, max(chunk_rows, 1)):
            size = min(chunk_rows, positions - start)
            self._run_positions(start, operands, logits[:size], None if gated is None else gated[:size])

        if largest is not None:
            for tensor in (self.outputs.losses, self.grad_features, self.grad_weight, self.grad_bias):
                if tensor is not None:
                    tensor.mul_(largest)

    def _run_positions(self, start: int, operands: triton_rows.Operands, logits: Tensor, gated: Tensor | None) -> None:
        """Adds the C positions from `start` on to outputs and gradients.

        `logits` (C, width) is memory for the logits, and for the residuals that take their place; `gated` (C, width)
        for the gated residuals, None without gates.
        """
        chunk, vocabulary = slice(start, start + len(logits)), len(self.weight)
        scale = HALF_SCALE if self.weight.dtype == torch.float16 else 1.0
        is_padding = (self.target[chunk] == self.options.ignore_index)[:, None]
        features = self.features[chunk].masked_fill(is_padding, 0.0).to(self.weight.dtype)  # C x D, not even NaN stays
        logits[:, vocabulary:].fill_(-float("inf"))
        torch.mm(features, self.weight.t(), out=logits[:, :vocabulary])
        is_wanted = any(g is not None for g in (self.grad_features, self.grad_weight, self.grad_bias))
        triton_rows.form_residuals_(
            logits, gated, operands, start, self.outputs, self.options, scale=scale, write=is_wanted
        )
        residual = logits[:, :vocabulary]
        if self.grad_features is not None:
            self.grad_features[chunk] = product(residual, self.weight).mul_(1 / scale)
        gated_residual = residual if gated is None else gated[:, :vocabulary]
        if self.grad_bias is not None:
            self.grad_bias += gated_residual.sum(0, dtype=self.grad_bias.dtype) * (1 / scale)
        if self.grad_weight is not None:
            add_product_(self.grad_weight, gated_residual.t(), features, alpha=1 / scale)


def autocast_dtype() -> torch.dtype | None:
    """The dtype in which autocast for GPUs multiplies; None where it is off."""
    if not torch.is_autocast_enabled():
        return None
    newer = hasattr(torch, "get_autocast_dtype")
    return torch.get_autocast_dtype("cuda") if newer else torch.get_autocast_gpu_dtype()


def has_wide_products(dtype: torch.dtype) -> bool:
    """Whether torch can multiply matrices of this dtype into float32 on a GPU; for float32 always.

    False for half precision with a torch for AMD GPUs, and for float16 where the user allowed it to sum in float16.
    """
    if dtype == torch.float32:
        return True
    version = tuple(int(number) for number in torch.__version__.split(".")[:2])
    narrow = dtype == torch.float16 and getattr(torch.backends.cuda.matmul, "allow_fp16_accumulation", False)
    return version >= WIDE_PRODUCTS_SINCE and torch.version.hip is None and not narrow


def product(left: Tensor, right: Tensor) -> Tensor:
    """`left @ right` of (A, B) and (B, C) in float32. A CPU has no such product of half precision: it widens both."""
    if left.dtype == torch.float32:
        return left @ right
    return torch.mm(left, right, out_dtype=torch.float32) if left.is_cuda else left.float() @ right.float()


def add_product_(total: Tensor, left: Tensor, right: Tensor, *, alpha: float = 1.0) -> None:
    """`total += alpha · left @ right` with `total` (A, C) in float32; otherwise as `product`."""
    if left.dtype != torch.float32 and left.is_cuda:
        torch.addmm(total, left, right, out_dtype=torch.float32, alpha=alpha, out=total)
    else:
        total.addmm_(left.float(), right.float(), alpha=alpha)
