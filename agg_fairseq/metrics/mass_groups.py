"""Tokens by their share of the training text: frequent, medium, rare, very rare."""

from __future__ import annotations

import torch
from torch import Tensor

from .groups import FrequencyGroups

MASS_GROUPS = ("frequent", "medium", "rare", "very rare")
MASS_PERCENT = (40, 30, 20, 10)


def frequency_mass_groups(counts: Tensor) -> FrequencyGroups:
    """The tokens that make up the top 40%, next 30%, next 20% and last 10% of the training text.

    Tokens are ranked by decreasing count, those of equal count by index. Each begins where the ones before it end, and
    is in the part of the text that it begins in; so the most frequent token is always frequent. Tokens that were
    never seen are very rare.

    Args:
        counts: (V,) occurrences in the training set, whole numbers.

    Returns:
        FrequencyGroups: every token, in the groups `MASS_GROUPS`.

    Raises:
        ValueError: `counts` is no vector, has a negative number, or is all zero.

    Reference: Choi et al. (2020), Sec. 4.3 and Fig. 2, which give the top 40% and the bottom 10%.
    """
    if counts.dim() != 1 or counts.lt(0).any() or not counts.any():
        found = f"{counts.tolist()[:6]} of shape {tuple(counts.shape)}"
        raise ValueError(f"expected counts of shape (V,), none negative and not all zero, got {found}")
    ranked = torch.argsort(counts, descending=True, stable=True)  # V
    sorted_counts = counts[ranked].long()
    before = sorted_counts.cumsum(0) - sorted_counts  # V, tokens of the text before those of this entry
    percent = torch.tensor(MASS_PERCENT).cumsum(0)[:-1]  # 40, 70, 90
    of_token = torch.empty(len(counts), dtype=torch.int64)
    of_token[ranked] = (100 * before[:, None] >= percent * counts.long().sum()).sum(1)
    return FrequencyGroups(of_token, MASS_GROUPS)


def group_shares(tokens: Tensor, groups: FrequencyGroups) -> dict[str, float]:
    """The share of each group in a text.

    Args:
        tokens: (N,) indices, N >= 1.
        groups: the group of each token of the vocabulary.

    Returns:
        By group, in [0, 1].

    Raises:
        ValueError: there are no tokens.

    Reference: Choi et al. (2020), Fig. 2.
    """
    if tokens.numel() == 0:
        raise ValueError("expected at least one token, got none")
    of_token = groups.of_token[tokens]  # N
    return {name: of_token.eq(index).double().mean().item() for index, name in enumerate(groups.names)}
