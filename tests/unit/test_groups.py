import torch

from agg_fairseq.metrics import (
    frequency_groups,
    frequency_mass_groups,
    group_shares,
    occurrence_groups,
    relative_frequency_groups,
)


def test_groups_by_hand():
    """Ten tokens ranked 9, 8, … by count, the first three excluded: 7 in groups of 30/50/20%: 2, 4,
    1."""
    groups = frequency_groups(torch.arange(10), excluded=torch.arange(10) > 6)
    assert [groups.members(name).tolist() for name in groups.names] == [[5, 6], [1, 2, 3, 4], [0]]
    assert groups.sizes() == {"frequent": 2, "medium": 4, "rare": 1}


def test_relative_frequency_groups_by_hand():
    """Of 1,000,000 tokens: 10 are 1e-5 exactly, still frequent; 1 is 1e-6, still medium; 0 is
    rare."""
    counts = torch.tensor([0, 999_976, 10, 9, 1, 4, 0])
    groups = relative_frequency_groups(counts, excluded=torch.arange(7) == 0)
    assert groups.of_token.tolist() == [-1, 0, 0, 1, 1, 1, 2]


def test_occurrence_groups_by_hand():
    groups = occurrence_groups(torch.tensor([0, 1, 99, 100, 500, 0]), excluded=torch.arange(6) == 0)
    members = {name: groups.members(name).tolist() for name in groups.names}
    assert members == {"100 or more": [3, 4], "1 to 99": [1, 2], "absent": [5]}


def test_mass_groups_by_hand():
    """Of 100 tokens, by rank: 35 from 0, 30 from 35, 15 from 65, 10 from 80, 10 from 90; the
    borders are 40, 70, 90."""
    groups = frequency_mass_groups(torch.tensor([10, 0, 35, 15, 10, 30]))
    members = {name: groups.members(name).tolist() for name in groups.names}
    assert members == {"frequent": [2, 5], "medium": [3], "rare": [0], "very rare": [1, 4]}
    shares = group_shares(torch.tensor([2, 2, 5, 1]), groups)
    assert shares == {"frequent": 0.75, "medium": 0, "rare": 0, "very rare": 0.25}
