"""How strongly an optimizer pushes the rows of the output embedding away from features, relative to pulling them."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ..functional.loss_core import CHUNK_ELEMENTS


class PushPull:
    r"""Movements of the rows of W along the mean feature, by pushes and by pulls.

    The gradient of the likelihood into row k has two parts. Where k is the target y_i, it is pulled to the features of
    that position; everywhere else it is pushed away:

    .. math::
        \mathrm{pull}_k = \sum_{i: y_i = k} (P_{ik} - 1) H_i, \qquad \mathrm{push}_k = \sum_{i: y_i \ne k} P_{ik} H_i

    Adam multiplies both by :math:`s_k = 1 / (\sqrt{v_k} + \epsilon)` (momentum only spreads them over later updates).
    With u the direction of the mean feature, `ratio` says how much more that favors pushes, over the rows of a group
    and all updates that were added:

    .. math::
        \frac{\sum (\mathrm{push}_k \odot s_k) \cdot u}{\sum \mathrm{push}_k \cdot u} \Big/
        \frac{\sum (\mathrm{pull}_k \odot s_k) \cdot u}{\sum \mathrm{pull}_k \cdot u}

    It is the B/A of `functional.adam_memory`, measured; 1 for gradient descent.

    Args:
        rows: V.
    """

    def __init__(self, rows: int) -> None:
        self.sums = torch.zeros(4, rows, dtype=torch.float64)  # push, pull, push ⊙ s, pull ⊙ s; each times u

    def add(self, parts: tuple[Tensor, Tensor], direction: Tensor, scale: Tensor) -> None:
        """Adds an update.

        Args:
            parts: as of `push_and_pull`, of all its positions.
            direction: (D,), u; its length does not matter.
            scale: (V, D), s.
        """
        along = torch.stack([*parts, *(part * scale for part in parts)]) @ direction  # 4 x V
        self.sums += along.double().cpu()

    def ratio(self, tokens: Tensor | Sequence[int]) -> float | None:
        """The ratio over the rows of these tokens; None if none of them was a target."""
        push, pull, push_step, pull_step = self.sums[:, tokens].sum(1)
        ratio = ((push_step / push) / (pull_step / pull)).item()
        return ratio if math.isfinite(ratio) else None


@torch.no_grad()
def push_and_pull(
    features: Tensor, weight: Tensor, target: Tensor, bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The two parts (V, D) of the gradient of the summed likelihood into W: their sum is the gradient.

    Args:
        features: (N, D), H.
        weight: (V, D), W.
        target: (N,) int64 in [0, V).
        bias: (V,) of the output layer.
    """
    push, pull = torch.zeros_like(weight), torch.zeros_like(weight)
    rows = max(1, CHUNK_ELEMENTS // len(weight))
    for h, y in zip(features.split(rows), target.split(rows), strict=True):
        probabilities = torch.nn.functional.linear(h, weight, bias).softmax(1)  # n x V
        of_target = probabilities.gather(1, y[:, None])  # n x 1
        pull.index_add_(0, y, (of_target - 1) * h)
        push.addmm_(probabilities.scatter_(1, y[:, None], 0.0).T, h)
    return push, pull
