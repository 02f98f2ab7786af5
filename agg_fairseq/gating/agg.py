"""Adaptive gradient gating (Yu et al. 2022, Sec. 4)."""

from typing import Any

from torch import Tensor

from ..functional import Gates, agg_gates
from .window import WindowGating


class AggGating(WindowGating):
    """Adaptive gradient gating: `functional.agg_gates` of the appearances in the window.

    Args:
        vocabulary: V.
        alpha: this, `rare_fraction`, `window`, `static_after_epoch`, `count_current_batch`,
            `excluded`, `ignore_index` and `process_group` as of `WindowGating`.
        which: "both" gates; or "g1" or "g2" alone, as of `functional.agg_gates`.

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
        self,
        vocabulary: int,
        *,
        alpha: float | None = None,
        rare_fraction: float | None = None,
        window: int | None = None,
        which: str = "both",
        static_after_epoch: int = 0,
        count_current_batch: bool = False,
        excluded: Tensor | None = None,
        ignore_index: int = -100,
        process_group: Any = None,
    ) -> None:
        super().__init__(
            vocabulary,
            alpha=alpha,
            rare_fraction=rare_fraction,
            window=window,
            static_after_epoch=static_after_epoch,
            count_current_batch=count_current_batch,
            excluded=excluded,
            ignore_index=ignore_index,
            process_group=process_group,
        )
        self.which = which
        appearances = self.counter.appearances
        self.form_gates(appearances, 1, appearances == 0)  # raises where `which` is none of these

    def form_gates(self, appearances: Tensor, updates: int, rare: Tensor) -> Gates:
        """`functional.agg_gates`."""
        return agg_gates(appearances, updates, rare, which=self.which)
