import torch

from agg_fairseq.metrics import (
    frequency_groups,
    frequency_mass_groups,
    group_shares,
    occurrence_groups,
    relative_frequency_groups,
)


def list_members(groups):
    return {name: groups.members(name).tolist() for name in groups.names}


def test_groups_by_hand():
    """Seven tokens occur, in groups of 30/50/20%: 2, 4, 1. Three are excluded, two are unseen, and
    of four equal ones all or none are rare."""
    counts = torch.tensor([1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 0, 0])
    groups = frequency_groups(counts, excluded=(torch.arange(12) > 6) & (torch.arange(12) < 10))
    expected = {"frequent": [5, 6], "medium": [1, 2, 3, 4], "rare": [0], "unseen": [10, 11]}
    assert list_members(groups) == expected
    groups = frequency_groups(torch.tensor([9, 8, 8, 7, 1, 1, 1, 1]))
    assert list_members(groups) == {"frequent": [0], "medium": [1, 2, 3], "rare": [4, 5, 6, 7]}


def test_relative_frequency_groups_by_hand():
    """Of 1,000,000 tokens, 10 are 1e-5 exactly, still frequent, and 1 is 1e-6, still medium; of
    2,000,000, it is rare."""
    counts = torch.tensor([0, 999_976, 10, 9, 1, 4, 0])
    groups = relative_frequency_groups(counts, excluded=torch.arange(7) == 0)
    assert list_members(groups) == {
        "frequent": [1, 2],
        "medium": [3, 4, 5],
        "rare": [],
        "unseen": [6],
    }
    counts[1] += 1_000_000
    assert relative_frequency_groups(counts).members("rare").tolist() == [4]


def test_occurrence_groups_by_hand():
    groups = occurrence_groups(torch.tensor([0, 1, 99, 100, 500, 0]), excluded=torch.arange(6) == 0)
    assert list_members(groups) == {"100 or more": [3, 4], "1 to 99": [1, 2], "absent": [5]}


def test_mass_groups_by_hand():
    """Of 100 tokens, by rank: 35 from 0, 30 from 35, 15 from 65, 10 from 80, 10 from 90; the
    borders are 40, 70, 90."""
    groups = frequency_mass_groups(torch.tensor([10, 0, 35, 15, 10, 30]))
    expected = {"frequent": [2, 5], "medium": [3], "rare": [0], "very rare": [4], "unseen": [1]}
    assert list_members(groups) == expected
    shares = group_shares(torch.tensor([2, 2, 5, 1]), groups)
    assert shares == dict.fromkeys(expected, 0) | {"frequent": 0.75, "unseen": 0.25}
