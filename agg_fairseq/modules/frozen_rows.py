"""Rows of a parameter that training leaves exactly as they are."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn


class FrozenRows:
    """Keeps some rows of a parameter at their present values, bit by bit.

    From its construction on the gradient of these rows is zero, so that the loss builds up no momentum and they do not
    enter the norm for gradient clipping. `restore`, to be called after each step of the optimizer, undoes what moves a
    row without a gradient: weight decay.

    Args:
        weight: (V, D), a leaf that requires a gradient.
        rows: (V,) bool, or their indices (R,) int64.
    """

    def __init__(self, weight: nn.Parameter, rows: Tensor) -> None:
        self.weight = weight
        self.rows = rows.nonzero().squeeze(1) if rows.dtype == torch.bool else rows
        self.values = weight.detach()[self.rows].clone()  # R x D
        self._hook = weight.register_hook(lambda gradient: gradient.index_fill(0, self.rows, 0.0))

    @torch.no_grad()
    def restore(self, masters: Iterable[Tensor] = ()) -> None:
        """Puts the values back into the parameter, and into copies of it (V, D) that an optimizer keeps."""
        for tensor in (self.weight, *masters):
            tensor[self.rows] = self.values.to(tensor.dtype)

    def release(self) -> None:
        """Lets the rows train from now on."""
        self._hook.remove()
