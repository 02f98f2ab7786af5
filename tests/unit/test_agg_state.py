import pytest
import torch

from agg_fairseq.functional import agg_gates, rare_tokens
from agg_fairseq.modules import AggState

V, SPECIAL = 40, torch.arange(40) < 2
UPDATES = [torch.randint(2, V - 8, (30,), generator=torch.Generator().manual_seed(seed)) for seed in range(6)]


def trained(state, updates=UPDATES, first=0):
    found = []
    for number, target in enumerate(updates, first):
        state.counter.begin(number)
        state.set_gates()
        state.counter.add(target)
        found.append(state.gates)
    return found


def counts(updates):
    return torch.bincount(torch.cat(updates), minlength=V)


@pytest.mark.parametrize("which", ["both", "faded"])
@pytest.mark.parametrize("threshold", [{"alpha": 0.6}, {"rare_fraction": 0.3}])
def test_gates_come_from_the_updates_before(threshold, which):
    """A window of two: none for the first update, then those of the one or two before. Special tokens are common."""
    first, *others = trained(AggState(V, window=2, never_rare=SPECIAL, gates=which, **threshold))
    assert first is None
    for number, gates in enumerate(others, 1):
        known = UPDATES[max(0, number - 2) : number]
        rare = rare_tokens(counts(known), len(known), never_rare=SPECIAL, **threshold)
        expected = agg_gates(counts(known), len(known), rare, which=which, alpha=threshold.get("alpha"))
        assert rare.any() and not rare[SPECIAL].any()
        assert all(torch.equal(getattr(gates, name), vector) for name, vector in expected.vectors().items())


def test_the_update_under_way_may_count():
    """As one update more than there are in memory, so that the first update is gated too."""
    state = AggState(V, alpha=0.6, window=3)
    for number in range(2):
        state.counter.begin(number)
        state.set_gates(counts(UPDATES[number : number + 1]))
        state.counter.add(UPDATES[number])
        assert torch.equal(state.gates.rare, counts(UPDATES[: number + 1]) / (number + 1) < 0.6)


def test_a_fixed_group_stays():
    state = AggState(V, rare_fraction=0.3, window=1)
    first, second, *_ = trained(state)[1:]
    assert not torch.equal(first.rare, second.rare)
    state.fix_group()
    fixed = state.static_rare
    assert all(torch.equal(gates.rare, fixed) for gates in trained(state, UPDATES[::-1], 6))
    restored = AggState(V, rare_fraction=0.3, window=1)
    restored.load_checkpoint_state(state.checkpoint_state())
    assert torch.equal(restored.static_rare, fixed)


@pytest.mark.parametrize(("gates", "expected"), [("both", [0, 0, 0, 1, 1, 1]), ("faded", [0] * 6)])
def test_warns_once_where_most_tokens_are_rare(caplog, gates, expected):
    """When the window is full: before, most had no time to appear. Such a group is recommended for faded gates."""
    state = AggState(V, alpha=0.99, window=3, gates=gates)
    for number, told in enumerate(expected):
        trained(state, UPDATES[:1], number)
        assert sum("of the vocabulary is rare" in record.message for record in caplog.records) == told


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"alpha": 1.5}, "alpha between 0 and 1, both excluded, got 1.5"),
        ({"alpha": float("nan")}, "alpha between 0 and 1, both excluded, got nan"),
        ({"rare_fraction": 0.0}, "rare_fraction between 0 and 1"),
        ({"alpha": 0.1, "rare_fraction": 0.1}, "drop one of them"),
        ({"gates": "g3"}, "both, g1, g2, faded"),
        ({"window": 0}, "at least 1 update"),
    ],
)
def test_agg_options_out_of_range(options, words):
    with pytest.raises(ValueError, match=words):
        AggState(V, **options)
