"""Says which tokens are rare: the one ranking behind gates, freezing and the groups of every
measure."""

import torch
from torch import Tensor

from .counts import whole_counts


def check_open_interval(name: str, value: float) -> float:
    """Returns `value`; raises ValueError if it is not in (0, 1)."""
    if not 0 < value < 1:
        raise ValueError(f"expected {name} between 0 and 1, both excluded, got {value}")
    return value


def rarest(counts: Tensor, fraction: float, excluded: Tensor | None = None) -> Tensor:
    """The tokens that do not occur, and about the rarest F of those that do: (V,) bool.

    These are `{k : c[k] <= q}`, with the threshold q for which the number of tokens that occur and
    are rare is nearest to F·n, of n that occur; but not 0, unless F·n < ½. So tokens of equal
    counts are rare or not together, a token that does not occur is at least as rare as any that
    does, and rows that are never a target do not take the place of tokens that are.

    Args:
        counts: (V,) c, occurrences as a target; as `whole_counts`, which raises ValueError.
        fraction: F in (0, 1).
        excluded: (V,) bool, tokens that are in no group, neither counted in n nor rare.

    Examples:
        >>> rarest(torch.tensor([9, 0, 2, 2, 1]), 0.5)  # of four that occur, one or three
        tensor([False,  True,  True,  True,  True])
    """
    check_open_interval("rare_fraction", fraction)
    counts = whole_counts(counts)
    candidates = torch.ones_like(counts, dtype=torch.bool) if excluded is None else ~excluded
    ascending = (counts * candidates).sort().values  # V
    # All numbers stay tensors: to read them, the host would have to wait for a GPU.
    absent = (ascending == 0).sum()  # with those that are excluded
    size = (fraction * (len(counts) - absent).double() + 0.5).floor().long()
    ascending = torch.cat([ascending.new_zeros(1), ascending])
    border = ascending.index_select(0, (absent + size).view(1))  # count of the rarest F·n-th token
    below, at_most = (ascending[1:] < border).sum(), (ascending[1:] <= border).sum()
    takes_ties = (below <= absent) | (below + at_most <= 2 * (absent + size))
    return candidates & torch.where(takes_ties, counts <= border, counts < border)


def frequency_ranks(counts: Tensor, excluded: Tensor | None = None) -> Tensor:
    """The rank of each token by decreasing count, from 0 for the most frequent one: (V,) int64.

    Of equal counts the higher index ranks as rarer, since dictionaries of fairseq are sorted by
    frequency; in another order the choice among equals is arbitrary. The ranks of excluded tokens
    come after those of all others. Arguments as of `rarest`.

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
    """The tokens whose rank by `frequency_ranks` is at least `rank`, (V,) bool, without those that
    are excluded."""
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
    """The rare tokens R of an update, (V,) bool, by a threshold, or by a share of those that
    have appeared.

    With `alpha`, Eq. 5: `R = {k : a[k] / updates < α}`. With `rare_fraction`, R is the `rarest`
    tokens of the window.

    Args:
        appearances: (V,) a, integer, how often each token was a target in the window.
        updates: number of updates in the window, at least 1.
        alpha: α in (0, 1), in appearances per update. Exactly one of `alpha` and `rare_fraction` is
            given.
        rare_fraction: F in (0, 1).
        excluded: (V,) bool, tokens that are in no group, as `excluded` of `rarest`.

    Examples:
        >>> rare_tokens(torch.tensor([9, 0, 2, 1]), updates=10, rare_fraction=0.4)
        tensor([False,  True, False,  True])
    """
    if alpha is None and rare_fraction is not None:
        return rarest(appearances, rare_fraction, excluded)
    if alpha is None or rare_fraction is not None:
        raise ValueError("expected exactly one of alpha and rare_fraction")
    rare = whole_counts(appearances).double() / updates < check_open_interval("alpha", alpha)
    return rare if excluded is None else rare & ~excluded
