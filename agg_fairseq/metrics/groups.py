"""Groups of tokens by training frequency, as each paper defines them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ..functional import rarest, whole_counts
from ..functional.gates import frequency_ranks
from ..names import GROUPS, MASS_GROUPS, OCCURRENCE_GROUPS, UNSEEN


@dataclass(frozen=True)
class FrequencyGroups:
    """The frequency group of each token."""

    group_ids: Tensor  # (V,) int64, an index into `names`, or −1 for a token that is in no group
    names: tuple[str, ...] = GROUPS  # from the most frequent group to the rarest

    def members(self, name: str) -> Tensor:
        """The tokens of a group (n,), as ascending indices."""
        return (self.group_ids == self.names.index(name)).nonzero().squeeze(1)

    def all_members(self) -> dict[str, Tensor]:
        """The `members` of each group."""
        return {name: self.members(name) for name in self.names}

    def sizes(self) -> dict[str, int]:
        """The number of tokens in each group."""
        return {name: len(tokens) for name, tokens in self.all_members().items()}


def frequency_groups(counts: Tensor, *, excluded: Tensor | None = None) -> FrequencyGroups:
    """The first 30%, next 50% and last 20% of the tokens that occur, by training frequency.

    The borders are those of `functional.rarest`; tokens of equal counts are in one group.

    Args:
        counts: (V,) occurrences as a target in the training set.
        excluded: (V,) bool, tokens that are in no group.

    Examples:
        >>> frequency_groups(torch.arange(10, 0, -1)).sizes()
        {'frequent': 3, 'medium': 5, 'rare': 2}

    Reference: Yu et al. (2022), Sec. 3.1.
    """
    rarer = [rarest(counts, share, excluded) for share in (0.7, 0.2)]
    return _groups(rarer, counts, excluded)


def relative_frequency_groups(counts: Tensor, *, excluded: Tensor | None = None) -> FrequencyGroups:
    """Tokens that each make up at least 1e-5 of the training text, at least 1e-6, or less.

    Args: as those of `frequency_groups`, not all zero.

    Reference: Yu et al. (2021), Sec. 2.1.
    """
    counts = whole_counts(counts)
    total = counts.sum().double()
    rarer = [counts.double() < frequency * total for frequency in (1e-5, 1e-6)]
    return _groups(rarer, counts, excluded)


def occurrence_groups(counts: Tensor, *, excluded: Tensor | None = None) -> FrequencyGroups:
    """Tokens that occur at least 100 times in a text, 1 to 99 times, or never: `OCCURRENCE_GROUPS`.

    Args: as those of `frequency_groups`, of the text that a model is fine-tuned on.

    Reference: none; groups of our own (docs/fine-tuning.md).
    """
    counts = whole_counts(counts)
    group_ids = (counts < 100).long() + (counts == 0)
    if excluded is not None:
        group_ids = group_ids.masked_fill(excluded, -1)
    return FrequencyGroups(group_ids, OCCURRENCE_GROUPS)


def frequency_mass_groups(counts: Tensor, *, excluded: Tensor | None = None) -> FrequencyGroups:
    """The tokens that make up the top 40%, next 30%, next 20% and last 10% of the training text:
    `MASS_GROUPS`.

    With the text, less the excluded tokens, in the order of `functional.frequency_ranks`, a token
    is in the group of the part in which its occurrences begin.

    Args: as those of `frequency_groups`, not all zero.

    Reference: Choi et al. (2020), Sec. 4.3 and Fig. 2, which give the top 40% and the bottom 10%.
    """
    mass = whole_counts(counts)
    if excluded is not None:
        mass = mass.masked_fill(excluded, 0)
    ranks = frequency_ranks(counts, excluded)
    ranked = torch.empty_like(mass).scatter_(0, ranks, mass)  # V, in order of rank
    before = (ranked.cumsum(0) - ranked)[ranks]  # V, occurrences of the tokens of lower rank
    rarer = [100 * before >= percent * mass.sum() for percent in (40, 70, 90)]
    return _groups(rarer, counts, excluded, MASS_GROUPS)


def _groups(
    rarer: list[Tensor],
    counts: Tensor,
    excluded: Tensor | None,
    names: tuple[str, ...] = GROUPS,
) -> FrequencyGroups:
    """Groups from (V,) bool for each but the first: the tokens of it and of all rarer ones. Tokens
    that do not occur are `UNSEEN`."""
    group_ids = torch.stack(rarer).sum(0).masked_fill(counts == 0, len(names))
    if excluded is not None:
        group_ids = group_ids.masked_fill(excluded, -1)
    if (group_ids == len(names)).any():
        names = (*names, UNSEEN)
    return FrequencyGroups(group_ids, names)


def group_shares(tokens: Tensor, groups: FrequencyGroups) -> dict[str, float]:
    """The share, in [0, 1], of each group in the tokens (N,) of a text; NaN if N = 0.

    Reference: Choi et al. (2020), Fig. 2.
    """
    group_ids, shares = groups.group_ids[tokens], {}  # N
    for index, name in enumerate(groups.names):
        shares[name] = group_ids.eq(index).double().mean().item()
    return shares
