"""What Adam forgets, by values computed by hand."""

import math

import pytest
import torch

from agg_fairseq.functional import forgetting, forgotten
from agg_fairseq.functional.adam_memory import updates_per_appearance

COUNTS = torch.tensor([0, 3, 4, 40, 9953])  # of 10,000 targets


def test_forgotten_tokens_and_their_loss_are_those_computed_by_hand():
    n = updates_per_appearance(COUNTS, 10)
    assert n.dtype == torch.float64
    assert n.tolist() == pytest.approx([math.inf, 333.8335, 250.5003, 25.5033, 1.000048], rel=1e-5)
    # h = 6.93 for 0.9, 34.66 for 0.98, 693 for 0.999; the token of 3 occurrences does not count
    assert forgotten(COUNTS, 10, 0.9).tolist() == [False, False, True, True, False]
    assert forgotten(COUNTS, 10, 0.98).tolist() == [False, False, True, False, False]
    assert forgetting(COUNTS, 10, 0.9) == pytest.approx(
        (4 * math.log(250.5003 / 6.931472) + 40 * math.log(25.5033 / 6.931472)) / 10_000, rel=1e-5
    )
    assert forgetting(COUNTS, 10, 0.98) == pytest.approx(
        4 * math.log(250.5003 / 34.657359) / 10_000, rel=1e-5
    )
    assert forgetting(COUNTS, 10, 0.999) == 0
