"""The forward pass of `gated_cross_entropy` on a GPU: products in the features' dtype, all between them in one kernel.

It equals the plain form of `chunks.py` in what it computes, and differs in how:

- The three products take the dtype of the features (under autocast, its dtype) and sum in float32: half precision is
  what a GPU multiplies fast. Logits and residuals P − Q are rounded to that dtype between them, as fairseq's are; in
  float16 the residuals are multiplied by 2^10 first, since the tail of P lies below its smallest number. That leaves
  room for gates of up to 60; the weights of positions are brought to at most 1, and multiplied back at the end.
- Positions are not sorted into common, rare and padding: to count them would be to wait for the device. The kernel
  gates entry by entry, and writes the residual twice: as it is for the features, gated for W.
- A chunk is as large as memory allows. Each adds its part to dL/dW, (V, D) in float32, and that traffic of 8·V·D bytes
  should be small beside the 6·C·V·D operations of the chunk's products.

Beyond inputs and gradients it holds two chunks of logits (one without gates), the gradients in float32, and under
autocast W in half precision.
"""

from __future__ import annotations

import importlib.util
import os

import torch
from torch import Tensor

from .chunks import ChunkedLoss, Options
from .products import add_product_, has_wide_products, product

CHUNK_BYTES = 2**28
"""Of one buffer of logits."""
HALF_SCALE = 2.0**10
SWITCH = "AGG_FAIRSEQ_TRITON"
"""Set to 0, it leaves GPUs to the plain form too, as where Triton finds no compiler."""


def forward_pass(features: Tensor, options: Options) -> type[ChunkedLoss]:
    """The form that suits the device: the fused one on a GPU with Triton, the plain one elsewhere.

    Left to the plain form are the penalty of unlikelihood, which gathers and scatters; float64; and half precision
    where torch has no products of it into float32.
    """
    if not features.is_cuda or options.unlikelihood is not None:
        return ChunkedLoss
    dtype = FusedLoss.product_dtype(features)
    if dtype == torch.float64 or not has_wide_products(dtype) or os.environ.get(SWITCH) == "0":
        return ChunkedLoss
    return FusedLoss if importlib.util.find_spec("triton") else ChunkedLoss


def autocast_dtype() -> torch.dtype | None:
    """What autocast for GPUs multiplies in, None where it is off."""
    if not torch.is_autocast_enabled():
        return None
    newer = hasattr(torch, "get_autocast_dtype")
    return torch.get_autocast_dtype("cuda") if newer else torch.get_autocast_gpu_dtype()


class FusedLoss(ChunkedLoss):
    """One forward pass over chunks of consecutive positions; nothing in it waits for the device."""

    @staticmethod
    def product_dtype(features: Tensor) -> torch.dtype:
        """What a linear layer would multiply the features in."""
        dtype = autocast_dtype()
        return features.dtype if dtype is None or features.dtype == torch.float64 else dtype

    def _run(self) -> None:
        from .triton_rows import Rows, aligned  # needs Triton, which a CPU has not

        positions, vocabulary, width = len(self.target), len(self.weight), aligned(len(self.weight))
        unit = self._largest_weight()
        weights = None if unit is None else self.options.position_weight / unit
        self.rows = Rows.of(self.target, self.bias, weights, self.options.gates, width)
        chunk_rows = self._chunk_rows(positions, CHUNK_BYTES // self.weight.element_size())
        logits = self.weight.new_empty(chunk_rows, width)  # C x V, and what fills the rows up
        gated = torch.empty_like(logits) if self.options.gates is not None and self.grad_weight is not None else None
        for start in range(0, positions, max(chunk_rows, 1)):
            size = min(chunk_rows, positions - start)
            logits[:, vocabulary:].fill_(-float("inf"))
            self._run_consecutive(start, logits[:size], None if gated is None else gated[:size])
        if unit is not None:
            self._multiply_(unit)

    def _largest_weight(self) -> Tensor | None:
        """ω of the positions at most, but at least 1: a scalar on the device; None where all are 1."""
        weight = self.options.position_weight
        return None if weight is None or not len(weight) else weight.amax().clamp(min=1).to(self.outputs.terms.dtype)

    def _multiply_(self, unit: Tensor) -> None:
        for tensor in (self.outputs.terms, self.grad_features, self.grad_weight, self.grad_bias):
            if tensor is not None:
                tensor.mul_(unit)

    def _run_consecutive(self, start: int, logits: Tensor, gated: Tensor | None) -> None:
        """A chunk whose logits, and residuals after them, go into the given buffers (C, width)."""
        chunk, vocabulary = slice(start, start + len(logits)), len(self.weight)
        is_padding = (self.target[chunk] == self.options.ignore_index)[:, None]
        features = self.features[chunk].masked_fill(is_padding, 0.0).to(self.weight.dtype)  # C x D
        torch.mm(features, self.weight.t(), out=logits[:, :vocabulary])
        self._form_residuals_(start, logits, gated)
        residual, unscaled = logits[:, :vocabulary], 1 / self._scale()
        if self.grad_features is not None:
            self.grad_features[chunk] = product(residual, self.weight).mul_(unscaled)
        if self.grad_bias is not None:
            self.grad_bias += residual.sum(0, dtype=self.grad_bias.dtype) * unscaled
        if self.grad_weight is not None:
            kept = residual if gated is None else gated[:, :vocabulary]
            add_product_(self.grad_weight, kept.t(), features, alpha=unscaled)

    def _form_residuals_(self, start: int, logits: Tensor, gated: Tensor | None) -> None:
        from .triton_rows import form_residuals_

        gradients = (self.grad_features, self.grad_weight, self.grad_bias)
        form_residuals_(
            logits,
            gated,
            self.rows,
            start,
            self.outputs.nll,
            self.outputs.terms,
            self.outputs.prediction,
            vocabulary=len(self.weight),
            label_smoothing=self.options.label_smoothing,
            ignore_index=self.options.ignore_index,
            scale=self._scale(),
            write=any(gradient is not None for gradient in gradients),
        )

    def _scale(self) -> float:
        return HALF_SCALE if self.weight.dtype == torch.float16 else 1.0
