"""Gates that do not change, such as those of a freezing study."""

from torch import Tensor
from typing_extensions import Unpack

from ..functional import Gates
from .base import Gating, GatingOptions


class FixedGating(Gating):
    """The same gates in every update, such as `functional.freezing_gates`, once they are set.

    Arguments as those of `Gating`.
    """

    rare: Tensor | None
    g1: Tensor | None
    g2: Tensor | None

    def __init__(self, vocabulary: int, **options: Unpack[GatingOptions]) -> None:
        super().__init__(vocabulary, **options)
        for name in ("rare", "g1", "g2"):
            self.register_buffer(name, None, persistent=False)

    def set_gates(self, gates: Gates | None) -> None:
        """Sets the gates of the updates that follow; None is no gates."""
        for name in ("rare", "g1", "g2"):
            setattr(self, name, None if gates is None else getattr(gates, name))

    def gates(self, target: Tensor | None) -> Gates | None:
        """Those that were set."""
        return None if self.rare is None else Gates(self.rare, self.g1, self.g2)
