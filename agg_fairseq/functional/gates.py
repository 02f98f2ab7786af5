"""Gates: how much of the gradient of a softmax loss reaches each row of the output embedding, by
each method."""

from dataclasses import dataclass

import torch
from torch import Tensor

from .counts import whole_counts

AGG_GATES = ("both", "g1", "g2")
AGPS_VARIANTS = ("eq15", "algorithm1")
# the parts of Eq. 4 (Yu et al. 2022) that `freezing_gates` can freeze
FREEZING_PARTS = ("b", "c", "bc")


@dataclass(frozen=True)
class Gates:
    """The gates G of an update, by the kind of the target.

    Args:
        rare: (V,) bool, the rare tokens R. Outside R every gate is 1, whatever the vectors below
            hold.
        g1: (V,), not negative, gates at positions whose target is not rare; None means 1
            everywhere.
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


def agg_gates(appearances: Tensor, updates: int, rare: Tensor, *, which: str = "both") -> Gates:
    """The gates of AGG on the rare tokens R (Yu et al. 2022, Eqs. 7 and 8).

    - `g1[k] = min(a[k] / updates, 1)`, at positions whose target is not rare;
    - `g2[k] = min(a[k] / ā, 1)` with `ā` the mean of `a` over R, at positions whose target is rare.
      Where no rare token has appeared at all, none is rarer than the others, and g2 is 1.

    Args:
        appearances: (V,) a, integer.
        updates: number of updates in the window, at least 1.
        rare: (V,) bool, R, as `rare_tokens` returns it; may be empty.
        which: "both"; or "g1" or "g2" for that gate alone (Table 8).

    Examples:
        >>> gates = agg_gates(torch.tensor([9, 0, 2, 1]), 10, torch.tensor([False, True, False, True]))
        >>> gates.at_common_targets(like=torch.ones(1))
        tensor([1.0000, 0.0000, 1.0000, 0.1000])
        >>> gates.at_rare_targets(like=torch.ones(1))
        tensor([1., 0., 1., 1.])
    """
    if which not in AGG_GATES:
        raise ValueError(f"expected gates to be one of {', '.join(AGG_GATES)}, got {which!r}")
    a = whole_counts(appearances).double()
    g1 = g2 = None
    if which != "g2":
        g1 = (a / updates).clamp(max=1).float()
    if which != "g1":
        # NaN where R is empty, 0 where nothing in R has appeared
        mean = a.mul(rare).sum() / rare.sum()
        g2 = torch.where(mean > 0, (a / mean).clamp(max=1), torch.ones_like(a)).float()
    return Gates(rare=rare, g1=g1, g2=g2)


def agps_gates(
    counts: Tensor, present: Tensor, rare: Tensor, *, mu1: float, mu2: float, variant: str = "eq15"
) -> Gates:
    """The gates of AGPS for a batch (Yu et al. 2021, Eqs. 13–15), on the rare tokens that are no
    target in it; else 1.

    With `f1[k] = min(c[k] / μ1, 1)` and `f2[k] = min(c[k] / μ2, 1)`, the gate of such a token is

    - `f1` at positions whose target is not rare, in both variants;
    - at positions with another rare token as target, `f2` in Eq. 15, and `f1 + f2` in Algorithm 1
      of the paper's appendix, which adds the second loss to the first.

    Args:
        counts: (V,) c, occurrences as a target in the training set.
        present: (V,) bool, the tokens that are a target in the batch.
        rare: (V,) bool, R.
        mu1: μ1 > 0, in occurrences; in the paper larger than the count of any rare token.
        mu2: μ2 > 0, in occurrences.
        variant: "eq15" or "algorithm1".

    Examples:
        >>> counts, present = torch.tensor([90, 8, 2]), torch.tensor([True, False, False])
        >>> gates = agps_gates(counts, present, torch.tensor([False, True, True]), mu1=10, mu2=4)
        >>> gates.at_common_targets(like=torch.ones(1)), gates.at_rare_targets(like=torch.ones(1))
        (tensor([1.0000, 0.8000, 0.2000]), tensor([1.0000, 1.0000, 0.5000]))
    """
    for name, mu in (("mu1", mu1), ("mu2", mu2)):
        if not mu > 0:
            raise ValueError(f"expected {name} above 0, got {mu}")
    if variant not in AGPS_VARIANTS:
        raise ValueError(
            f"expected variant to be one of {', '.join(AGPS_VARIANTS)}, got {variant!r}"
        )
    c = whole_counts(counts).double()
    f1 = (c / mu1).clamp(max=1)
    if variant == "eq15":
        g2 = (c / mu2).clamp(max=1)
    else:  # Algorithm 1 computes f2 from counts that were clipped at μ1
        g2 = f1 + (c.clamp(max=mu1) / mu2).clamp(max=1)
    return Gates(rare, *(gate.masked_fill(present, 1.0).float() for gate in (f1, g2)))


def freezing_gates(rare: Tensor, parts: str) -> Gates:
    """Gates that freeze `parts`, "b", "c" or "bc", of Eq. 4 (Yu et al. 2022, Table 2) on the rare
    tokens R (V,).

    Part (a) pulls a rare token towards the features whose target it is, and is never frozen here;
    (b) pushes it away from the features of targets that are not rare, (c) from those of the other
    rare ones.
    """
    if parts not in FREEZING_PARTS:
        raise ValueError(f"expected parts to be one of {', '.join(FREEZING_PARTS)}, got {parts!r}")
    closed = torch.zeros_like(rare, dtype=torch.float32)
    return Gates(
        rare=rare, g1=closed if "b" in parts else None, g2=closed if "c" in parts else None
    )
