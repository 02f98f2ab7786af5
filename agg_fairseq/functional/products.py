"""Products of half-precision matrices that sum, and end, in float32."""

from __future__ import annotations

import torch
from torch import Tensor

WIDE_SINCE = (2, 10)
"""The torch whose `addmm` adds a product of half-precision matrices to a float32 sum."""


def has_wide_products(dtype: torch.dtype) -> bool:
    """Does torch multiply matrices of this dtype into float32 on a GPU? Any do that are float32 themselves.

    Not with a torch for AMD's cards, nor where float16 was allowed to sum in float16.
    """
    if dtype == torch.float32:
        return True
    version = tuple(int(number) for number in torch.__version__.split(".")[:2])
    narrow = dtype == torch.float16 and getattr(torch.backends.cuda.matmul, "allow_fp16_accumulation", False)
    return version >= WIDE_SINCE and torch.version.hip is None and not narrow


def product(left: Tensor, right: Tensor) -> Tensor:
    """`left @ right` (A, B)(B, C), as float32. On a CPU, which has no such product, the factors are widened."""
    if left.dtype == torch.float32:
        return left @ right
    return torch.mm(left, right, out_dtype=torch.float32) if left.is_cuda else left.float() @ right.float()


def add_product_(total: Tensor, left: Tensor, right: Tensor, *, alpha: float = 1.0) -> None:
    """`total += alpha · left @ right`, with `total` (A, C) in float32, as `product`."""
    if left.dtype != torch.float32 and left.is_cuda:
        torch.addmm(total, left, right, out_dtype=torch.float32, alpha=alpha, out=total)
    else:
        total.addmm_(left.float(), right.float(), alpha=alpha)
