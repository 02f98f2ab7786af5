"""From counts of tokens to who is rare, for all methods and measures, and to gates: how much of the
gradient of a softmax loss reaches each row of the output embedding."""

from dataclasses import dataclass

import torch
from torch import Tensor

AGG_GATES = ("both", "g1", "g2")
AGPS_VARIANTS = ("eq15", "algorithm1")
# the parts of Eq. 4 (Yu et al. 2022) that `freezing_gates` can freeze
FREEZING_PARTS = ("b", "c", "bc")


def whole_counts(counts: Tensor, vocabulary: int | None = None) -> Tensor:
    """The counts (V,) as int64.

    Integers on a GPU are not looked at, so that the host does not wait for it. Numbers that are no
    integers are rounded, since a moving average of checkpoints is not exact.

    Raises:
        ValueError: it is no tensor of the shape (`vocabulary`,); or a number is negative, above
            2^53, or not whole within a thousandth.
    """
    if not isinstance(counts, Tensor):
        raise ValueError(f"expected counts in a tensor, got a {type(counts).__name__}")
    if counts.dim() != 1 or vocabulary not in (None, len(counts)):
        size = "V" if vocabulary is None else vocabulary
        raise ValueError(f"expected counts of {size} tokens, got shape {tuple(counts.shape)}")
    if not counts.is_floating_point():
        whole = counts.long()
        if counts.is_cuda or ((whole >= 0) & (whole <= 2**53)).all():
            return whole
    rounded = counts.double().round()
    is_whole = (counts.double() - rounded).abs() <= 1e-3 * rounded
    if not (is_whole & (rounded >= 0) & (rounded <= 2**53)).all():
        raise ValueError(
            f"expected counts of {len(counts)} tokens, whole numbers from 0 to 2^53, got {counts}"
        )
    return rounded.long()


def check_targets(target: Tensor, vocabulary: int, ignore_index: int) -> None:
    """ValueError for targets that are not int64, or neither in [0, V) nor `ignore_index`; where they
    are on a GPU is not looked at, so that the host does not wait for it."""
    if target.dtype != torch.int64:
        raise ValueError(f"expected targets of torch.int64, got {target.dtype}")
    is_out = ((target < 0) | (target >= vocabulary)) & (target != ignore_index)
    if not target.is_cuda and is_out.any():
        raise ValueError(
            f"expected targets in [0, {vocabulary}) or {ignore_index} (ignored), got "
            f"{target[is_out][0].item()}"
        )


def check_open_interval(name: str, value: float) -> float:
    """Returns a value in (0, 1), or raises ValueError."""
    if not 0 < value < 1:
        raise ValueError(f"expected {name} between 0 and 1, both excluded, got {value}")
    return value


def rarest(counts: Tensor, fraction: float, excluded: Tensor | None = None) -> Tensor:
    """The tokens that do not occur, and about the rarest F of those that do: (V,) bool.

    These are `{k : c[k] <= q}`, with the threshold q for which the number of tokens that occur and
    are rare is nearest to F·n, of n that occur; but not 0, unless F·n < ½. So tokens of equal
    counts are rare or not together, and rows that are never a target do not take the place of
    tokens that are.

    Args:
        counts: (V,) c, occurrences as a target.
        fraction: F in (0, 1).
        excluded: (V,) bool, tokens that are neither counted in n nor rare.

    Examples:
        >>> rarest(torch.tensor([9, 0, 2, 2, 1]), 0.5)  # of four that occur, one or three
        tensor([False,  True,  True,  True,  True])
    """
    if not 0 < fraction < 1:
        raise ValueError(f"expected rare_fraction between 0 and 1, both excluded, got {fraction}")
    counts = whole_counts(counts)
    candidates = torch.ones_like(counts, dtype=torch.bool) if excluded is None else ~excluded
    ascending = (counts * candidates).sort().values  # V
    # All numbers stay tensors, so that the host does not wait for a GPU.
    absent = (ascending == 0).sum()  # with those that are excluded
    size = (fraction * (len(counts) - absent).double() + 0.5).floor().long()
    ascending = torch.cat([ascending.new_zeros(1), ascending])
    border = ascending.index_select(0, (absent + size).view(1))  # count of the rarest F·n-th token
    below, at_most = (ascending[1:] < border).sum(), (ascending[1:] <= border).sum()
    takes_ties = (below <= absent) | (below + at_most <= 2 * (absent + size))
    return candidates & torch.where(takes_ties, counts <= border, counts < border)


def frequency_ranks(counts: Tensor, excluded: Tensor | None = None) -> Tensor:
    """The rank of each token by decreasing count, from 0: (V,) int64.

    Of equal counts the higher index ranks as rarer, since dictionaries of fairseq are sorted by
    frequency. The ranks of excluded tokens (V,) come after those of all others.

    Examples:
        >>> special = torch.tensor([True, False, False, False])
        >>> frequency_ranks(torch.tensor([9, 0, 2, 2]), excluded=special)
        tensor([3, 2, 0, 1])
    """
    counts = whole_counts(counts)
    if excluded is not None:
        counts = counts.masked_fill(excluded, -1)
    order = counts.argsort(descending=True, stable=True)
    return torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))


def tokens_from_rank(counts: Tensor, rank: int, excluded: Tensor | None = None) -> Tensor:
    """The tokens of at least this rank by `frequency_ranks` that are not excluded, (V,) bool."""
    rare = frequency_ranks(counts, excluded) >= rank
    return rare if excluded is None else rare & ~excluded


def rare_tokens(
    appearances: Tensor,
    updates: int,
    *,
    alpha: float | None = None,
    rare_fraction: float | None = None,
    excluded: Tensor | None = None,
) -> Tensor:
    """The rare tokens R of an update, (V,) bool.

    With `alpha`, Eq. 5: `R = {k : a[k] / updates < α}`. With `rare_fraction`, R is the `rarest`
    tokens of the window. Exactly one of the two is given.

    Args:
        appearances: (V,) a, integer, how often each token was a target in the window.
        updates: number of updates in the window, at least 1.
        alpha: α in (0, 1), in appearances per update.
        rare_fraction: F in (0, 1).
        excluded: (V,) bool, tokens that are in no group.

    Examples:
        >>> rare_tokens(torch.tensor([9, 0, 2, 1]), updates=10, rare_fraction=0.4)
        tensor([False,  True, False,  True])
    """
    if alpha is None and rare_fraction is not None:
        return rarest(appearances, rare_fraction, excluded)
    if alpha is None or rare_fraction is not None:
        found = f"alpha {alpha} and rare_fraction {rare_fraction}"
        raise ValueError(f"expected one of alpha and rare_fraction, got {found}")
    if updates < 1:
        raise ValueError(f"expected updates of at least 1, got {updates}")
    rate = whole_counts(appearances).double() / updates
    rare = rate < check_open_interval("alpha", alpha)
    return rare if excluded is None else rare & ~excluded


@dataclass(frozen=True, eq=False)
class Gates:
    """The gates G of an update; outside R each becomes 1.

    Args:
        rare: (V,) bool, the rare tokens R.
        g1: (V,), not negative, finite, gates where the target is not rare; None means 1.
        g2: (V,), not negative, finite, gates where the target is rare; None means 1.
    """

    rare: Tensor
    g1: Tensor | None = None
    g2: Tensor | None = None

    def __post_init__(self) -> None:
        if self.rare.dtype != torch.bool:
            raise ValueError(f"expected rare of torch.bool, got {self.rare.dtype}")
        for name, gate in (("g1", self.g1), ("g2", self.g2)):
            if gate is not None:
                if gate.shape != self.rare.shape:
                    found = f"{tuple(gate.shape)} and {tuple(self.rare.shape)}"
                    raise ValueError(f"expected {name} and rare of one shape, got {found}")
                if not gate.is_cuda and not ((gate >= 0) & gate.isfinite()).all():
                    found = f"{gate.min().item()} to {gate.max().item()}"
                    raise ValueError(f"expected {name} of at least 0, and finite, got {found}")
                object.__setattr__(self, name, torch.where(self.rare, gate.detach(), 1.0))


def agg_gates(appearances: Tensor, updates: int, rare: Tensor, *, which: str = "both") -> Gates:
    """The gates of AGG on the rare tokens R (Yu et al. 2022, Eqs. 7 and 8).

    - `g1[k] = min(a[k] / updates, 1)`, at positions whose target is not rare;
    - `g2[k] = min(a[k] / ā, 1)` with `ā` the mean of `a` over R, at positions whose target is rare;
      1 where no rare token has appeared at all.

    Args:
        appearances: (V,) a, integer.
        updates: number of updates in the window, at least 1.
        rare: (V,) bool, R; may be empty.
        which: "both"; or "g1" or "g2" alone (Table 8).

    Examples:
        >>> gates = agg_gates(torch.tensor([9, 0, 2, 1]), 10, torch.tensor([False, True, False, True]))
        >>> gates.g1, gates.g2
        (tensor([1.0000, 0.0000, 1.0000, 0.1000]), tensor([1., 0., 1., 1.]))
    """
    if which not in AGG_GATES:
        raise ValueError(f"expected gates to be one of {', '.join(AGG_GATES)}, got {which!r}")
    if updates < 1:
        raise ValueError(f"expected updates of at least 1, got {updates}")
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
    """The gates of AGPS (Yu et al. 2021, Eqs. 13–15), on the rare tokens that are no target in a
    batch; else 1.

    With `f1[k] = min(c[k] / μ1, 1)` and `f2[k] = min(c[k] / μ2, 1)`, the gate of such a token is

    - `f1` at positions whose target is not rare, in both variants;
    - at positions with another rare token as target, `f2` in Eq. 15, and `f1 + f2` in Algorithm 1
      of the appendix, which adds the second loss to the first.

    Args:
        counts: (V,) c, occurrences as a target in the training set.
        present: (V,) bool, the tokens that are a target in the batch.
        rare: (V,) bool, R.
        mu1: μ1 > 0, in occurrences; in the paper above the count of any rare token.
        mu2: μ2 > 0, in occurrences.
        variant: "eq15" or "algorithm1".

    Examples:
        >>> counts, present = torch.tensor([90, 8, 2]), torch.tensor([True, False, False])
        >>> gates = agps_gates(counts, present, torch.tensor([False, True, True]), mu1=10, mu2=4)
        >>> gates.g1, gates.g2
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

    Part (b) pushes a rare token away from the features of targets that are not rare, (c) from those
    of the other rare ones. Part (a), which pulls it towards its own, is never frozen here.
    """
    if parts not in FREEZING_PARTS:
        raise ValueError(f"expected parts to be one of {', '.join(FREEZING_PARTS)}, got {parts!r}")
    closed = torch.zeros_like(rare, dtype=torch.float32)
    return Gates(rare, closed if "b" in parts else None, closed if "c" in parts else None)
