"""Gates: how much of the gradient of a softmax loss reaches each row of the output embedding."""

from dataclasses import dataclass

import torch
from torch import Tensor

PARTS = ("b", "c", "bc")  # the parts of Eq. 4 (Yu et al. 2022) that `freezing_gates` can freeze


@dataclass(frozen=True)
class Gates:
    """The gates G of an update, by the kind of the target.

    Args:
        rare: (V,) bool, the rare tokens R. Outside R every gate is 1, whatever the vectors below hold.
        g1: (V,), not negative, gates at positions whose target is not rare; None means 1 everywhere.
        g2: (V,), not negative, gates at positions whose target is rare; None means 1 everywhere.
    """

    rare: Tensor
    g1: Tensor | None = None
    g2: Tensor | None = None

    def at_common_targets(self, like: Tensor) -> Tensor | None:
        """(V,) in the dtype of `like`, or None where every gate is 1."""
        return None if self.g1 is None else self.g1.to(like).masked_fill(~self.rare, 1.0)

    def at_rare_targets(self, like: Tensor) -> Tensor | None:
        """The same at targets that are rare."""
        return None if self.g2 is None else self.g2.to(like).masked_fill(~self.rare, 1.0)


def freezing_gates(rare: Tensor, parts: str) -> Gates:
    """Gates that freeze `parts`, "b", "c" or "bc", of Eq. 4 (Yu et al. 2022, Table 2) on the rare tokens R (V,).

    Part (a) pulls a rare token towards the features whose target it is, and is never frozen here; (b) pushes it away
    from the features of targets that are not rare, (c) from those of the other rare ones.
    """
    if parts not in PARTS:
        raise ValueError(f"expected parts to be one of {', '.join(PARTS)}, got {parts!r}")
    closed = torch.zeros_like(rare, dtype=torch.float32)
    return Gates(rare=rare, g1=closed if "b" in parts else None, g2=closed if "c" in parts else None)
