"""How much of the gradient of a softmax loss reaches each row of the output embedding."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Gates:
    """The gates G of an update, by what kind of token the target is.

    Args:
        rare: (V,) bool, the rare tokens R. Outside R every gate is 1, whatever the vectors below hold.
        gate_common: (V,), not negative, gates at positions whose target is not rare; None means 1 everywhere.
        gate_rare: (V,), not negative, gates at positions whose target is rare; None means 1 everywhere.
        appearances: (V,) a, in place of `gate_rare`: at a rare target y the gate of token k is min(a[k] / a[y], 1).

    Raises:
        ValueError: both `gate_rare` and `appearances` are given.
    """

    rare: Tensor
    gate_common: Tensor | None = None
    gate_rare: Tensor | None = None
    appearances: Tensor | None = None

    def __post_init__(self) -> None:
        if self.gate_rare is not None and self.appearances is not None:
            raise ValueError("Gates: expected gate_rare or appearances, got both")

    def vectors(self) -> dict[str, Tensor]:
        """The vectors that are given, by name; each (V,)."""
        named = vars(self)
        return {name: vector for name, vector in named.items() if vector is not None}

    def at_common_targets(self, like: Tensor) -> Tensor | None:
        """(V,) in the dtype of `like`, or None where every gate is 1."""
        return None if self.gate_common is None else self._ones_outside_rare(self.gate_common.to(like))

    def at_rare_targets(self, target: Tensor, like: Tensor) -> Tensor | None:
        """(V,), or one row for each rare `target` (C,): (C, V); in the dtype of `like`, None where every gate is 1."""
        if self.gate_rare is not None:
            return self._ones_outside_rare(self.gate_rare.to(like))
        if self.appearances is None:
            return None
        a = self.appearances.to(like)
        of_target = a[target][:, None]  # C x 1
        ratio = (a / of_target.clamp(min=1)).clamp_(max=1)  # C x V
        return self._ones_outside_rare(ratio.masked_fill_(of_target == 0, 1.0))  # no token is rarer than an unseen one

    def _ones_outside_rare(self, gate: Tensor) -> Tensor:
        return gate.masked_fill(~self.rare, 1.0)
