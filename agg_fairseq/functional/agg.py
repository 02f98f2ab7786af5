"""Adaptive gradient gating: which tokens are rare at this update, and their gates (Yu et al. 2022, Sec. 4)."""

import torch
from torch import Tensor

from .checks import check_open_interval
from .gates import Gates
from .rare import rarest

GATES = ("both", "g1", "g2")
DEFAULT_ALPHA = 0.03  # appearances per update, at the paper's 32,000 tokens per update


def rare_tokens(
    appearances: Tensor,
    updates: int,
    *,
    alpha: float | None = None,
    rare_fraction: float | None = None,
    never_rare: Tensor | None = None,
) -> Tensor:
    """The rare tokens R of an update, (V,) bool, by a threshold or by a share of the vocabulary.

    With `alpha`, Eq. 5: `R = {k : a[k] / updates < α}`. With `rare_fraction`, R is the `rarest` tokens. Where
    more than that many have not appeared at all, it holds unseen tokens only: exclude those that can be no target.

    Args:
        appearances: (V,) a, integer, how often each token was a target in the window.
        updates: number of updates in the window, at least 1.
        alpha: α in (0, 1), in appearances per update. Exactly one of `alpha` and `rare_fraction` is given.
        rare_fraction: F in (0, 1).
        never_rare: (V,) bool, tokens that are in no group, as `excluded` of `rarest`.

    Examples:
        >>> rare_tokens(torch.tensor([9, 0, 2, 1]), updates=10, rare_fraction=0.5)
        tensor([False,  True, False,  True])
    """
    if (alpha is None) == (rare_fraction is None):
        raise ValueError("expected exactly one of alpha and rare_fraction")
    if updates < 1:
        raise ValueError(f"expected updates of at least 1, got {updates}")
    if alpha is not None:
        rare = appearances.double() / updates < check_open_interval("alpha", alpha)
        return rare if never_rare is None else rare & ~never_rare
    return rarest(appearances, check_open_interval("rare_fraction", rare_fraction), never_rare)


def agg_gates(appearances: Tensor, updates: int, rare: Tensor, *, which: str = "both") -> Gates:
    """The gates of AGG, Eqs. 7 and 8, on the rare tokens R.

    - `g1[k] = min(a[k] / updates, 1)`, at positions whose target is not rare;
    - `g2[k] = min(a[k] / ā, 1)` with `ā` the mean of `a` over R, at positions whose target is rare. Where no rare
      token has appeared at all, none is rarer than the others, and g2 is 1.

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
    if which not in GATES:
        raise ValueError(f"expected gates to be one of {', '.join(GATES)}, got {which!r}")
    a = appearances.double()
    g1 = g2 = None
    if which != "g2":
        g1 = (a / updates).clamp(max=1).float()
    if which != "g1":
        mean = a.mul(rare).sum() / rare.sum()  # NaN where R is empty, 0 where nothing in R has appeared
        g2 = torch.where(mean > 0, (a / mean).clamp(max=1), torch.ones_like(a)).float()
    return Gates(rare=rare, g1=g1, g2=g2)
