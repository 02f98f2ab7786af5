"""Adaptive gradient gating (Yu et al. 2022, Sec. 4)."""

from torch import Tensor
from typing_extensions import Unpack

from ..functional import Gates, agg_gates
from .window import WindowGating, WindowOptions


class AggGating(WindowGating):
    """Adaptive gradient gating: `functional.agg_gates` of the appearances in the window.

    Args:
        vocabulary: V.
        which: "both" gates; or "g1" or "g2" alone, as of `functional.agg_gates`.
        **options: as of `WindowGating`, such as `rare_fraction` and `window`.

    Examples:
        >>> import torch
        >>> from agg_fairseq.functional import gated_linear
        >>> gating = AggGating(vocabulary=50, rare_fraction=0.2, window=200)
        >>> features, weight = torch.randn(2, 3, 8), torch.randn(50, 8, requires_grad=True)
        >>> target = torch.randint(50, (2, 3))
        >>> logits = gated_linear(features, weight, None, target, gating(target))
        >>> torch.nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten()).backward()
        >>> gating.commit_update()
        >>> gating.counter.updates
        1
    """

    def __init__(
        self, vocabulary: int, *, which: str = "both", **options: Unpack[WindowOptions]
    ) -> None:
        super().__init__(vocabulary, **options)
        self.which = which
        appearances = self.counter.appearances
        self.form_gates(appearances, 1, appearances == 0)  # raises where `which` is none of these

    def form_gates(self, appearances: Tensor, updates: int, rare: Tensor) -> Gates:
        """`functional.agg_gates`."""
        return agg_gates(appearances, updates, rare, which=self.which)
