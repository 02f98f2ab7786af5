"""Copies between a GPU and the CPU that neither waits for."""

from __future__ import annotations

import torch
from torch import Tensor


class HostCopy:
    """A copy of a tensor on the CPU, which is under way until it is waited for.

    Args:
        source: on any device; it may be changed as soon as this returns.
    """

    def __init__(self, source: Tensor) -> None:
        self._arrived: torch.cuda.Event | None = None
        if source.is_cuda:
            self._copy = torch.empty_like(source, device="cpu", pin_memory=True).copy_(source, non_blocking=True)
            self._arrived = torch.cuda.Event()
            self._arrived.record(torch.cuda.current_stream(source.device))
        else:
            self._copy = source.clone()

    def wait(self) -> Tensor:
        """The copy, complete."""
        if self._arrived is not None:
            self._arrived.synchronize()
        return self._copy


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor of the CPU on a device, by way of pinned memory where that lets the copy run by itself."""
    if device.type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)
