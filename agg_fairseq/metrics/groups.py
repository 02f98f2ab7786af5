"""Tokens by training frequency: frequent, medium, rare."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

GROUPS = ("frequent", "medium", "rare")
AGG_SHARES = (0.3, 0.5, 0.2)
AGPS_FREQUENCIES = (1e-5, 1e-6)


@dataclass(frozen=True)
class FrequencyGroups:
    """Which frequency group each token is in.

    Args:
        of_token: (V,) int64, an index into `names`, or −1 for a token in no group.
        names: from the most frequent group to the rarest.
    """

    of_token: Tensor
    names: tuple[str, ...] = GROUPS

    def members(self, name: str) -> Tensor:
        """The tokens of a group, as indices."""
        return (self.of_token == self.names.index(name)).nonzero().squeeze(1)

    def sizes(self) -> dict[str, int]:
        """How many tokens each group has."""
        return {name: len(self.members(name)) for name in self.names}


def frequency_groups(
    counts: Tensor, *, shares: tuple[float, ...] = AGG_SHARES, excluded: tuple[int, ...] = ()
) -> FrequencyGroups:
    """The first 30%, next 50% and last 20% of the vocabulary by training frequency.

    Tokens of equal count keep the order of their indices.

    Args:
        counts: (V,) occurrences in the training set.
        shares: of the vocabulary, in the order of `GROUPS`; they sum to 1.
        excluded: tokens in no group (those that are never a target: pad and bos).

    Returns:
        FrequencyGroups: every group but the excluded tokens.

    Raises:
        ValueError: `shares` are not three positive numbers that sum to 1.

    Reference: Yu et al. (2022), Sec. 3.1.
    """
    if len(shares) != len(GROUPS) or min(shares) <= 0 or abs(sum(shares) - 1) > 1e-9:
        raise ValueError(f"expected {len(GROUPS)} positive shares that sum to 1, got {shares}")
    ranked = torch.argsort(counts, descending=True, stable=True)
    ranked = ranked[~torch.isin(ranked, torch.tensor(excluded, dtype=ranked.dtype))]
    of_token = torch.full((len(counts),), -1, dtype=torch.int64)
    start, cumulative = 0, 0.0
    for group, share in enumerate(shares):
        cumulative += share
        end = round(cumulative * len(ranked))
        of_token[ranked[start:end]] = group
        start = end
    return FrequencyGroups(of_token)


def relative_frequency_groups(
    counts: Tensor, *, frequencies: tuple[float, float] = AGPS_FREQUENCIES, excluded: tuple[int, ...] = ()
) -> FrequencyGroups:
    """The tokens that each make up at least 1e-5 of the training text, at least 1e-6, and less.

    Args:
        counts: (V,) occurrences in the training set.
        frequencies: from which on a token is frequent, and from which on it is medium, shares of all occurrences.
        excluded: tokens in no group (those that are never a target: pad and bos).

    Returns:
        FrequencyGroups: every token but the excluded ones.

    Raises:
        ValueError: `counts` are all zero, or `frequencies` are not two descending shares.

    Reference: Yu et al. (2021), Sec. 2.2.
    """
    if not 1 >= frequencies[0] > frequencies[1] > 0:
        raise ValueError(f"expected two descending shares, got {frequencies}")
    total = counts.sum().double()
    if total <= 0:
        raise ValueError("expected counts that are not all zero")
    of_token = sum((counts.double() < frequency * total).long() for frequency in frequencies)
    of_token[list(excluded)] = -1
    return FrequencyGroups(of_token)
