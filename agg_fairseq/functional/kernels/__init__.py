"""The implementations of gated cross-entropy, and the choice between them.

| implementation | file | where |
|---|---|---|
| chunked | `chunked.py` | CPUs; GPUs without Triton, in float64, or with a term beyond the likelihood |
| fused | `fused.py`, its kernel in `triton_rows.py` | GPUs with Triton, in float32 and half precision |

Both are classes with the interface of `ChunkedLoss`: `run` fills the outputs and the gradients, `gradients` returns the
latter. They compute the same numbers up to rounding, and both are tested against `naive_gated_cross_entropy`.
"""

import importlib.util
import os

import torch
from torch import Tensor

from ..loss_core import Options
from .chunked import ChunkedLoss

SWITCH = "AGG_FAIRSEQ_TRITON"
"""Environment variable; 0 selects `ChunkedLoss` on GPUs too, for example where Triton finds no C compiler."""


def select(features: Tensor, options: Options) -> type[ChunkedLoss]:
    """The implementation for features (N, D): fused on a GPU where it can run, chunked everywhere else.

    The fused one, and with it Triton, is imported only where it is selected.
    """
    if not features.is_cuda or os.environ.get(SWITCH) == "0" or importlib.util.find_spec("triton") is None:
        return ChunkedLoss
    if options.unlikelihood is not None or options.z_loss or options.adversarial:  # the kernel has none of them
        return ChunkedLoss

    from .fused import FusedLoss, has_wide_products

    dtype = FusedLoss.product_dtype(features)
    return FusedLoss if dtype != torch.float64 and has_wide_products(dtype) else ChunkedLoss
