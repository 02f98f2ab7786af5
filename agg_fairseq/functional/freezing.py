"""Which part of a rare token's gradient is held back: the freezing study (Yu et al. 2022, Sec. 3.3)."""

from __future__ import annotations

import torch
from torch import Tensor

from .gates import Gates

PARTS = ("b", "c", "bc")


def freezing_gates(rare: Tensor, parts: str) -> Gates:
    """Gates that freeze parts of Eq. 4 on the rare tokens: 0 on a part that is frozen, 1 on the others.

    Part (a) pulls a rare token towards the features whose target it is, and is never frozen here; (b) pushes it away
    from the features of targets that are not rare, (c) from those of the other rare ones.

    Args:
        rare: (V,) bool, R.
        parts: "b", "c" or "bc".

    Returns:
        Gates: float32.

    Raises:
        ValueError: `parts` is none of the three.

    Reference: Yu et al. (2022), Eq. 4 and Table 2.
    """
    if parts not in PARTS:
        raise ValueError(f"expected parts to be one of {', '.join(PARTS)}, got {parts!r}")
    closed = torch.zeros_like(rare, dtype=torch.float32)
    return Gates(rare=rare, gate_common=closed if "b" in parts else None, gate_rare=closed if "c" in parts else None)
