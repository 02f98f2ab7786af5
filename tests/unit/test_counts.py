import pytest
import torch
from torch import nn

from agg_fairseq import metrics
from agg_fairseq.f2 import mefmax
from agg_fairseq.functional import (
    agg_gates,
    agps_gates,
    forgetting,
    log_unigram,
    rare_tokens,
    rarest,
    tokens_from_rank,
    whole_counts,
)
from agg_fairseq.gating import AgpsGating
from agg_fairseq.gating.face import face_weights
from agg_fairseq.modules import UnigramLinear

COUNTS = torch.tensor([60, 25, 10, 4, 1, 0])
RARE = COUNTS < 10
TAKE_COUNTS = {
    "rarest": lambda counts: rarest(counts, 0.3),
    "tokens_from_rank": lambda counts: tokens_from_rank(counts, 3),
    "rare_tokens": lambda counts: rare_tokens(counts, 10, alpha=0.3),
    "agg_gates": lambda counts: agg_gates(counts, 10, RARE).g1,
    "agps_gates": lambda counts: agps_gates(counts, RARE, RARE, mu1=9, mu2=4).g1,
    "AgpsGating": lambda counts: AgpsGating(6, rare_rank=3, counts=counts).gates(None).g1,
    "face_weights": face_weights,
    "log_unigram": log_unigram,
    "UnigramLinear": lambda counts: UnigramLinear(nn.Parameter(torch.zeros(6, 2)), counts).bias,
    "forgetting": lambda counts: torch.tensor(forgetting(counts, 10, 0.9)),
    "mefmax": mefmax,
    **{name: lambda counts, name=name: getattr(metrics, name)(counts).group_ids for name in (
        "frequency_groups", "relative_frequency_groups", "frequency_mass_groups", "occurrence_groups",
    )},
}  # fmt: skip


@pytest.mark.parametrize("name", TAKE_COUNTS)
def test_shares_are_no_counts(name):
    function = TAKE_COUNTS[name]
    with pytest.raises(ValueError, match="counts"):
        function(COUNTS / COUNTS.sum())
    assert function(COUNTS.double()).equal(function(COUNTS))


def test_what_whole_counts_takes():
    """Integers as they are, and floating-point numbers that a moving average has changed a bit."""
    counts = torch.tensor([2**40, 3, 0])
    for same in (counts, counts.double(), counts.double() * (1 - 1e-4), counts.int().clamp(max=9)):
        assert whole_counts(same)[1:].tolist() == [3, 0] and whole_counts(same).dtype == torch.int64
    for wrong in (counts / 7, counts * torch.nan, -counts, counts * 2**20):
        with pytest.raises(ValueError, match="whole numbers from 0"):
            whole_counts(wrong)
    with pytest.raises(ValueError, match=r"counts of 4 tokens, got shape \(3,\)"):
        whole_counts(counts, 4)
    for function in (whole_counts, TAKE_COUNTS["AgpsGating"], TAKE_COUNTS["forgetting"]):
        with pytest.raises(ValueError, match="expected counts in a tensor, got a list"):
            function([3, 0])
