import math

import pytest
import torch

from agg_fairseq.errors import UserError
from agg_fairseq.metrics import FrequencyGroups, NextTokenStatistics, frequency_groups

V = 10


# Of tokens 0–9, 0 to 2 are frequent, 3 to 6 medium, 7 and 8 rare, and 9 is in no group.
GROUPS = FrequencyGroups(torch.tensor([0] * 3 + [1] * 4 + [2] * 2 + [-1]))


def predictions(logits):
    """Log-probabilities (N, V) in float64, and targets of all groups."""
    return logits.double().log_softmax(1), torch.arange(len(logits)) % 9


def statistics_of(log_probs, target, groups=GROUPS):
    statistics = NextTokenStatistics(groups, keep_positions=True)
    for part in (slice(0, 15), slice(15, None)):
        statistics.update(log_probs[part], target[part])
    return statistics


@pytest.fixture
def far_below():
    """Predictions in which the probabilities of rare tokens are far too small for float32."""
    logits = 2 * torch.randn(400, V, dtype=torch.float64)
    logits[:, 7:9] -= 200
    return predictions(logits)


def test_counts_by_hand():
    """Three positions with the targets 0, 0 and 9 of ten tokens; the rare group is 8 and 9."""
    statistics = NextTokenStatistics(frequency_groups(torch.arange(1, 11).flip(0)))
    statistics.update(torch.full((2, 10), 0.1).log(), torch.tensor([0, 0]))
    likely = torch.full((1, 10), 0.05)
    likely[0, 4] = 0.55
    statistics.update(likely.log(), torch.tensor([9]))
    for size in ((3, 10), (2, 9)):
        with pytest.raises(ValueError, match=r"expected \(N, 10\) and \(N,\), got"):
            statistics.update(torch.zeros(size), torch.tensor([0, 0]))
    assert statistics.tokens == 3
    sums = {"frequent": 2, "medium": 0, "rare": 1, "total": 3}
    assert statistics.group_sums(statistics.counts) == sums
    expected = {"frequent": 10, "medium": None, "rare": 20, "total": 2000 ** (1 / 3)}
    measures = statistics.compute()
    assert measures["perplexity"] == pytest.approx(expected)
    assert measures["unique_predictions"] == {"frequent": 1, "medium": 1, "rare": 0, "total": 2}
    unique = statistics.group_sums((statistics.counts > 0).long())
    assert unique == {"frequent": 1, "medium": 0, "rare": 1, "total": 2}
    # 0.3, 0.3 and 0.15 for two frequent targets; 0.2, 0.2 and 0.1 for a rare one
    ratios = {"frequent": 0.75 / 2, "medium": None, "rare": 0.5, "total": 1}
    assert measures["expected_over_observed"] == pytest.approx(ratios)
    # a fifth of the training tokens are rare, a third of these
    counts = torch.tensor([4, 0, 0, 0, 0, 0, 0, 0, 0, 1])
    reference = {"frequent": 3 * 0.8 / 2, "medium": None, "rare": 0.6, "total": 1}
    assert statistics.frequencies_over_observed(counts) == pytest.approx(reference)


def test_offsets_are_those_of_the_greatest_likelihood(far_below):
    log_probs, target = far_below
    statistics = statistics_of(log_probs, target)
    offsets = statistics.fit_offsets()
    assert offsets[0] == 0 and offsets[2] > 190
    shifted = log_probs + torch.cat([offsets, torch.zeros(1)])[GROUPS.group_ids]
    nll = torch.nn.functional.cross_entropy(shifted, target).item()
    calibrated, unchanged = statistics.calibrated(offsets), statistics.calibrated(0 * offsets)
    assert calibrated["perplexity"]["total"] == pytest.approx(math.exp(nll), rel=1e-6)
    for measure in ("perplexity", "expected_over_observed"):
        assert unchanged[measure] == pytest.approx(statistics.compute()[measure])  # of each group
    # where the gradient of the likelihood, which is concave, is zero
    ratios = calibrated["expected_over_observed"]
    assert (ratios["medium"], ratios["rare"]) == pytest.approx((1, 1), abs=1e-6)


def test_offsets_of_a_confident_model():
    """Full steps of Newton's method overshoot here."""
    torch.manual_seed(9)
    statistics = statistics_of(*predictions(20 * torch.randn(30, V, dtype=torch.float64)))
    found = statistics.calibrated(statistics.fit_offsets())["expected_over_observed"]
    assert (found["medium"], found["rare"]) == pytest.approx((1, 1), abs=1e-6)


def test_no_offset_of_a_model_that_has_diverged():
    logits = torch.randn(30, V)
    logits[3] = torch.nan
    with pytest.raises(UserError, match="NaN or 0 everywhere"):
        statistics_of(*predictions(logits)).fit_offsets()


def test_unseen_tokens_keep_their_logits():
    groups = frequency_groups(torch.arange(V).flip(0))
    assert groups.names[-1] == "unseen"
    statistics = statistics_of(*predictions(torch.randn(400, V)), groups)
    assert statistics.fit_offsets()[-1] == 0


def test_sums_of_float16_do_not_overflow():
    """65,504 is the largest number of float16."""
    groups = FrequencyGroups(torch.zeros(70_000, dtype=torch.int64), ("all",))
    found = NextTokenStatistics(groups)
    found.update(torch.zeros(1, 70_000, dtype=torch.float16), torch.tensor([5]))
    assert found.compute()["perplexity"]["total"] == pytest.approx(70_000)


@pytest.mark.parametrize(("nll", "perplexity"), [(700.0, math.exp(700)), (710.0, math.inf)])
def test_perplexity_is_infinite_beyond_the_range_of_numbers(nll, perplexity):
    statistics = NextTokenStatistics(GROUPS)
    logits = torch.full((1, V), -1e4)
    logits[0, :2] = torch.tensor([-nll, 0])
    statistics.update(logits, torch.tensor([0]))
    assert statistics.compute()["perplexity"]["total"] == pytest.approx(perplexity)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_logits_in_half_precision_are_what_they_are(far_below, dtype):
    """Also those of a group without a probability in float32."""
    logits, target = far_below[0].to(dtype), far_below[1]
    found, expected = (statistics_of(one, target).compute() for one in (logits, logits.double()))
    for measure in ("group_perplexity", "within_perplexity", "perplexity"):
        assert found[measure] == pytest.approx(expected[measure], rel=1e-4)
