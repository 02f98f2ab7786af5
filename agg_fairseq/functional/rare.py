"""Which tokens are rare: the one ranking behind gates, freezing and the groups of every measure."""

import torch
from torch import Tensor

from .checks import check_open_interval


def frequency_ranks(counts: Tensor, excluded: Tensor | None = None) -> Tensor:
    """The rank of each token by decreasing count, from 0 for the most frequent one: (V,) int64.

    Of equal counts the higher index ranks as rarer, since dictionaries of fairseq are sorted by frequency; in another
    order the choice among equals is arbitrary.

    Args:
        counts: (V,) occurrences as a target, whole numbers; V · their maximum is below 2^63.
        excluded: (V,) bool, tokens that are in no group. Their ranks come after those of all others.

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
    size = (check_open_interval("fraction", fraction) * number.double() + 0.5).floor().long()
    return (ranks >= number - size) & ~excluded


def tokens_from_rank(counts: Tensor, rank: int, excluded: Tensor | None = None) -> Tensor:
    """The tokens whose rank by `frequency_ranks` is at least `rank`, (V,) bool, without those that are excluded."""
    rare = frequency_ranks(counts, excluded) >= rank
    return rare if excluded is None else rare & ~excluded
