"""What a user would pick instead for plain likelihood, where it is installed and runs."""

import importlib.util
from collections.abc import Callable

import torch
from torch import Tensor

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Of features (N, D), weight (V, D) and target (N,): the sum of −log P[y]."""

PEERS = ("linear_cross_entropy", "liger-kernel", "cut-cross-entropy")
"""torch's own (from 2.13), chunked; and two packages of Triton kernels, the extra `peers`."""


def why_not(peer: str, device: str, dtype: str) -> str | None:
    """The reason why a peer cannot be run here; None where it can."""
    if peer == "linear_cross_entropy":
        has_it = hasattr(torch.nn.functional, "linear_cross_entropy")
        return None if has_it else "not run: torch has none"
    if device == "cpu":
        return "not run: needs a GPU"
    if importlib.util.find_spec(peer.replace("-", "_")) is None:
        return "not run: not installed"
    if peer == "cut-cross-entropy" and dtype == "float32":
        return "not run: half precision only"
    return None


def peer_loss(peer: str) -> Loss:
    """The loss of a peer that can be run."""
    if peer == "linear_cross_entropy":
        options = torch.nn.LinearCrossEntropyOptions()
        return lambda h, w, y: torch.nn.functional.linear_cross_entropy(h, w, y, reduction="sum", options=options)
    if peer == "liger-kernel":
        from liger_kernel.transformers.functional import liger_fused_linear_cross_entropy

        return lambda h, w, y: liger_fused_linear_cross_entropy(h, w, y, reduction="sum")
    from cut_cross_entropy import linear_cross_entropy

    return lambda h, w, y: linear_cross_entropy(h, w, y, reduction="sum")
