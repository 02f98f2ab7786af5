"""Which tokens are rare: the one ranking behind gates, freezing and the groups of every measure."""

import torch
from torch import Tensor


def check_open_interval(name: str, value: float) -> float:
    """Returns `value`; raises ValueError if it is not in (0, 1)."""
    if not 0 < value < 1:
        raise ValueError(f"expected {name} between 0 and 1, both excluded, got {value}")
    return value


def frequency_ranks(counts: Tensor, excluded: Tensor | None = None) -> Tensor:
    """The rank of each token by decreasing count, from 0 for the most frequent one: (V,) int64.

    Of equal counts the higher index ranks as rarer, since dictionaries of fairseq are sorted by
    frequency; in another order the choice among equals is arbitrary.

    Args:
        counts: (V,) occurrences as a target, whole numbers; V · their maximum is below 2^63.
        excluded: (V,) bool, tokens that are in no group. Their ranks come after those of all
            others.

    Examples:
        >>> frequency_ranks(torch.tensor([9, 0, 2, 2]), excluded=torch.tensor([True, False, False, False]))
        tensor([3, 2, 0, 1])
    """
    index = torch.arange(len(counts), device=counts.device)
    key = counts.long() * len(counts) + (len(counts) - 1 - index)  # V, all different
    if excluded is not None:
        key = key.masked_fill(excluded, -1)
    return torch.empty_like(key).scatter_(0, key.argsort(descending=True), index)


def rarest(counts: Tensor, fraction: float, excluded: Tensor | None = None) -> Tensor:
    """The rarest ⌊F·n + ½⌋ of the n tokens that are not excluded, (V,) bool, by `frequency_ranks`.

    Args:
        counts: as of `frequency_ranks`, which also says what `excluded` is.
        fraction: F in (0, 1).

    Examples:
        >>> rarest(torch.tensor([9, 0, 2, 1]), 0.5)
        tensor([False,  True, False,  True])
    """
    ranks = frequency_ranks(counts, excluded)
    excluded = torch.zeros_like(ranks, dtype=torch.bool) if excluded is None else excluded
    # n and the size of the group stay tensors: to read them, the host would have to wait for a GPU.
    number = (~excluded).sum()
    size = (check_open_interval("rare_fraction", fraction) * number.double() + 0.5).floor().long()
    return (ranks >= number - size) & ~excluded


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
    never_rare: Tensor | None = None,
) -> Tensor:
    """The rare tokens R of an update, (V,) bool, by a threshold or by a share of the vocabulary.

    With `alpha`, Eq. 5: `R = {k : a[k] / updates < α}`. With `rare_fraction`, R is the `rarest`
    tokens. Where more than that many have not appeared at all, it holds unseen tokens only: exclude
    those that can be no target.

    Args:
        appearances: (V,) a, integer, how often each token was a target in the window.
        updates: number of updates in the window, at least 1.
        alpha: α in (0, 1), in appearances per update. Exactly one of `alpha` and `rare_fraction` is
            given.
        rare_fraction: F in (0, 1).
        never_rare: (V,) bool, tokens that are in no group, as `excluded` of `rarest`.

    Examples:
        >>> rare_tokens(torch.tensor([9, 0, 2, 1]), updates=10, rare_fraction=0.5)
        tensor([False,  True, False,  True])
    """
    if (alpha is None) == (rare_fraction is None):
        raise ValueError("expected exactly one of alpha and rare_fraction")
    if rare_fraction is not None:
        return rarest(appearances, rare_fraction, never_rare)
    rare = appearances.double() / updates < check_open_interval("alpha", alpha)
    return rare if never_rare is None else rare & ~never_rare
