"""The forward pass of `gated_cross_entropy` on a GPU: products in the features' dtype, all between them in one kernel.

It equals the plain form of `chunks.py` in what it computes, and differs in how:

- The three products take the dtype of the features (under autocast, its dtype) and sum in float32: half precision is
  what a GPU multiplies fast. Logits and residuals P − Q are rounded to that dtype between them, as fairseq's are; in
  float16 the residuals are multiplied by 2^10 first, since the tail of P lies below its smallest number.
- Positions are not sorted into common, rare and padding: to count them would be to wait for the device. The kernel
  gates entry by entry, and writes the residual twice: as it is for the features, gated for W.
- A chunk is as large as memory allows. Each adds its part to dL/dW, (V, D) in float32, and that traffic of 8·V·D bytes
  should be small beside the 6·C·V·D operations of the chunk's products.

Beyond inputs and gradients it holds two chunks of logits (one without gates), and the gradients in float32.
"""

from __future__ import annotations

import importlib.util

import torch
from torch import Tensor

from .chunks import ChunkedLoss, Options
from .products import add_product_, product

CHUNK_BYTES = 2**28
"""Of one buffer of logits."""
HALF_SCALE = 2.0**10


def forward_pass(features: Tensor, options: Options) -> type[ChunkedLoss]:
    """The form that suits the device: the fused one on a GPU with Triton, the plain one elsewhere.

    The penalty of unlikelihood, which gathers and scatters, and float64 are left to the plain form.
    """
    fits = features.is_cuda and features.dtype != torch.float64 and options.unlikelihood is None
    return FusedLoss if fits and importlib.util.find_spec("triton") else ChunkedLoss


class FusedLoss(ChunkedLoss):
    """One forward pass over chunks of consecutive positions; nothing in it waits for the device."""

    @staticmethod
    def product_dtype(features: Tensor) -> torch.dtype:
        """What a linear layer would multiply the features in."""
        return torch.get_autocast_gpu_dtype() if torch.is_autocast_enabled() else features.dtype

    def _run(self) -> None:
        positions, itemsize = len(self.target), self.weight.element_size()
        rows = self._chunk_rows(positions, CHUNK_BYTES // itemsize)
        logits = self.weight.new_empty(rows, self.weight.size(0))  # C x V
        gated = torch.empty_like(logits) if self.options.gates is not None and self.grad_weight is not None else None
        for start in range(0, positions, max(rows, 1)):
            chunk = slice(start, min(start + rows, positions))
            size = chunk.stop - chunk.start
            self._run_consecutive(chunk, logits[:size], None if gated is None else gated[:size])

    def _run_consecutive(self, chunk: slice, logits: Tensor, gated: Tensor | None) -> None:
        """A chunk whose logits, and residuals after them, go into the given buffers."""
        features = self.features[chunk].to(self.weight.dtype)  # C x D
        torch.mm(features, self.weight.t(), out=logits)
        self._form_residuals_(chunk, logits, gated)
        unscaled = 1 / self._scale()
        if self.grad_features is not None:
            self.grad_features[chunk] = product(logits, self.weight).mul_(unscaled)
        if self.grad_bias is not None:
            self.grad_bias += logits.sum(0, dtype=self.grad_bias.dtype) * unscaled
        if self.grad_weight is not None:
            residual = logits if gated is None else gated
            add_product_(self.grad_weight, residual.t(), features, alpha=unscaled)

    def _form_residuals_(self, chunk: slice, logits: Tensor, gated: Tensor | None) -> None:
        from .triton_rows import form_residuals_  # needs Triton, which a CPU has not

        nll, terms, _, prediction = self.outputs
        importance = self.options.position_weight
        form_residuals_(
            logits,
            gated,
            self.target[chunk],
            nll[chunk],
            terms[chunk],
            None if prediction is None else prediction[chunk],
            bias=self.bias,
            gates=None if gated is None else self.options.gates,
            importance=None if importance is None else importance[chunk].to(nll.dtype),
            label_smoothing=self.options.label_smoothing,
            ignore_index=self.options.ignore_index,
            scale=self._scale(),
            write=any(gradient is not None for gradient in (self.grad_features, self.grad_weight, self.grad_bias)),
        )

    def _scale(self) -> float:
        return HALF_SCALE if self.weight.dtype == torch.float16 else 1.0
