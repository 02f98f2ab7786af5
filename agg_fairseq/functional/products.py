"""Products of half-precision matrices that sum, and end, in float32."""

from __future__ import annotations

import torch
from torch import Tensor


def product(left: Tensor, right: Tensor) -> Tensor:
    """`left @ right` (A, B)(B, C) as float32, or float64 for float64."""
    if left.dtype == torch.float64 or left.dtype == torch.float32:
        return left @ right
    if _has_wide_products(left):
        return torch.mm(left, right, out_dtype=torch.float32)
    return (left @ right).float()


def add_product_(total: Tensor, left: Tensor, right: Tensor, *, alpha: float = 1.0) -> None:
    """`total += alpha · left @ right`, with `total` (A, C) in float32 or in the dtype of the factors.

    Where torch has no such product of half-precision matrices (before 2.10, and on a CPU), theirs is rounded to half
    precision before it is added.
    """
    if total.dtype == left.dtype:
        total.addmm_(left, right, alpha=alpha)
    elif _has_wide_products(left):
        torch.addmm(total, left, right, out_dtype=total.dtype, alpha=alpha, out=total)
    else:
        total.add_(left @ right, alpha=alpha)


def _has_wide_products(factor: Tensor) -> bool:
    """Half in, float32 out: on a GPU; torch 2.10 is the first whose `addmm` also takes a float32 sum."""
    major, minor = (int(number) for number in torch.__version__.split(".")[:2])
    return factor.is_cuda and (major, minor) >= (2, 10)
