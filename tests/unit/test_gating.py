"""Rules for gates: what they count, the life of an update, state, and options."""

import copy
import math

import pytest
import torch
from torch.distributed import checkpoint
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint as checkpoint_of_torch

from agg_fairseq.functional import NaiveAgg, agg_gates, gated_linear, rare_tokens
from agg_fairseq.gating import AggGating, AgpsGating, FaceWeights, Gating
from agg_fairseq.gating.face import face_weights

V = 30
EXCLUDED = torch.zeros(V, dtype=torch.bool).index_fill(0, torch.tensor([0, 29]), True)


def targets(seed, rows=2, steps=5):
    """Two of them are ignored."""
    generator = torch.Generator().manual_seed(seed)
    target = torch.randint(V, (rows, steps), generator=generator)
    target[0, :2] = -100
    return target


def counts(*seeds):
    tokens = torch.cat([targets(seed).flatten() for seed in seeds])
    return torch.bincount(tokens[tokens >= 0], minlength=V)


def train(rule, seeds):
    """What a rule decides in updates of one micro-batch each."""
    decided = []
    for seed in seeds:
        decided.append(rule(targets(seed)))
        if isinstance(rule, FaceWeights):
            rule.count(targets(seed + 50).clamp(min=0), targets(seed))
        rule.commit_update()
    return decided


def parts(decision):
    """The weights of positions, or the parts of gates; none at all of no decision."""
    if torch.is_tensor(decision):
        return [decision]
    return [] if decision is None else [*vars(decision).values()]


def test_what_is_not_counted():
    """Validation, dummy batches, and an update that was skipped or broken off."""
    gating = AggGating(V, rare_fraction=0.3)
    with torch.no_grad():
        assert gating(targets(1)) is None
    assert gating.eval()(targets(1)) is None and not gating.is_under_way
    gating.train()(targets(1), is_dummy=True)
    assert gating.is_under_way and not gating.counter.current.any()
    for end in (gating.roll_back_update, gating.commit_update):
        gating(targets(2))
        end()
    assert gating.counter.updates == 1 and gating.counter.appearances.equal(counts(2))


THRESHOLDS = pytest.mark.parametrize("threshold", [{"alpha": 0.4}, {"rare_fraction": 0.3}])


@THRESHOLDS
def test_special_tokens_are_common(threshold):
    """Also in a copy, and in one with the counts of another rule."""
    gating, other = AggGating(V, window=2, excluded=EXCLUDED, **threshold), AggGating(V, window=2)
    train(gating, range(6))
    train(other, (7, 8))
    copied = copy.deepcopy(gating)
    copied.counter.load_state_dict(other.counter.state_dict())  # without that of the rule
    for rule, seeds in ((gating, (4, 5)), (copy.deepcopy(gating), (4, 5)), (copied, (7, 8))):
        rare = rare_tokens(counts(*seeds), 2, excluded=EXCLUDED, **threshold)
        assert rare.any() and not rare[EXCLUDED].any()
        expected = agg_gates(counts(*seeds), 2, rare)
        assert_close(parts(rule.gates(None)), parts(expected), rtol=0, atol=0)


@THRESHOLDS
def test_a_hundred_updates_beside_the_naive_rule(threshold):
    """Of one to three micro-batches of any size, some of them rolled back."""
    generator = torch.Generator().manual_seed(0)
    fast, naive = (rule(V, window=7, **threshold) for rule in (AggGating, NaiveAgg))
    for update in range(100):
        for _ in range(update % 3 + 1):
            length = int(torch.randint(0, 9, (), generator=generator))
            target = torch.randint(-5, V, (2, length), generator=generator).clamp(min=-1)
            found, expected = fast(target.masked_fill(target < 0, -100)), naive(target)
            assert_close(parts(found), parts(expected), check_dtype=False)
        if update % 10 == 9:
            fast.roll_back_update()
            naive.current.zero_()
        else:
            fast.commit_update()
            naive.commit_update()


def test_a_window_is_one_epoch_unless_it_is_given():
    for window, expected in ((None, [1000, 7, 9]), (5, [5, 5, 5])):
        gating, found = AggGating(V, window=window), []
        for epoch in range(3):
            if epoch:
                gating.start_epoch(epoch, 5 + 2 * epoch)
            found.append(gating.counter.window)
        assert found == expected


def test_a_fixed_group_stays():
    """From the first update after the epoch in which the window is full."""
    gating = AggGating(V, rare_fraction=0.3, window=3, static_after_epoch=1)
    gating.start_epoch(2, 4)
    for seed in range(5):
        train(gating, [seed])
        assert (gating.static_rare is None) == (gating.counter.updates < 3 or seed < 3)
    for gates in train(gating, (9, 8, 7)):
        assert torch.equal(gates.rare, gating.static_rare)
    plain = AggGating(V, rare_fraction=0.3, window=3)
    plain.load_state_dict(gating.state_dict())
    assert plain.static_rare is None, "no group is to be fixed"


def test_weights_of_face_by_hand():
    """f = (4, 1, 0): 1 − f/4 = (0, 3/4, 1), times 3 / (7/4). No output, or equal output, is plain
    likelihood."""
    expected = {(4, 1, 0): [0.0, 9 / 7, 12 / 7], (1, 0, 0): [0.0, 1.5, 1.5], (5, 4): [0, 2]}
    expected |= {(0, 0): [1, 1], (3, 3): [1, 1]}
    for counts, weights in expected.items():
        assert face_weights(torch.tensor(counts)).tolist() == pytest.approx(weights)
    face = FaceWeights(3)
    face(torch.tensor([[0, -100]]))
    face.count(torch.tensor([[2, 1]]), torch.tensor([[0, -100]]))  # one position has a target
    face.commit_update()
    assert face(torch.tensor([[0, 2, -100]])).tolist() == [[1.5, 0, 1.5]]


RULES = {
    "agg": lambda: AggGating(V, rare_fraction=0.3, window=2),
    "agg, fixed": lambda: AggGating(V, rare_fraction=0.3, window=2, static_after_epoch=1),
    "face": lambda: FaceWeights(V),
}


@pytest.mark.parametrize("way", ["torch", "distributed"])
@pytest.mark.parametrize("name", RULES)
@pytest.mark.filterwarnings("ignore:torch.distributed")
def test_a_state_goes_on_exactly(name, way, tmp_path):
    first, second = RULES[name](), RULES[name]()
    first.start_epoch(2, 3)
    train(first, range(4))
    train(second, range(20, 24))
    if way == "torch":
        torch.save(first.state_dict(), tmp_path / "state.pt")
        second.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    else:  # where the state has other sizes than that of the second
        checkpoint.save({"gating": first}, checkpoint_id=tmp_path)
        checkpoint.load({"gating": second}, checkpoint_id=tmp_path)
    for one, other in zip(train(first, (4, 5, 6)), train(second, (4, 5, 6)), strict=True):
        assert_close(parts(one), parts(other), rtol=0, atol=0)


def test_the_window_is_that_of_the_options():
    first, second = AggGating(V, window=5), AggGating(V, window=2)
    train(first, range(4))
    second.load_state_dict(first.state_dict())
    assert (second.counter.window, second.counter.updates) == (2, 2)
    assert second.counter.appearances.equal(counts(2, 3))


def test_a_state_of_another_rule_is_refused():
    """What follows from the data is in no state."""
    agg, face = AggGating(V, rare_fraction=0.3, window=2, excluded=EXCLUDED), FaceWeights(V)
    agps = AgpsGating(V, rare_rank=5, counts=torch.arange(V), excluded=EXCLUDED)
    assert {*agg.state_dict()} == {"_extra_state", *face.state_dict()} and not agps.state_dict()
    for state, rule in ((agg.state_dict(), face), (face.state_dict(), agg), ({}, agg)):
        with pytest.raises((ValueError, RuntimeError)):
            rule.load_state_dict(state)


@pytest.mark.parametrize(
    ("rule", "options", "message"),
    [
        (AggGating, {"alpha": math.nan}, "alpha between 0 and 1, both excluded, got nan"),
        (AggGating, {"rare_fraction": 0.0}, "rare_fraction between 0 and 1"),
        (AggGating, {"rare_fraction": 0.1, "alpha": 0.1}, "got alpha 0.1 and"),
        (AggGating, {"which": "g3"}, "one of both, g1, g2"),
        (AggGating, {"window": 2.5}, "a whole number, got 2.5"),
        (AggGating, {"window": 0}, "at least 1 update"),
        (AggGating, {"static_after_epoch": -1}, "static_after_epoch of at least 0, got -1"),
        (AggGating, {"excluded": torch.tensor([0, 1])}, r"excluded \(30,\) of torch.bool, got"),
        (AgpsGating, {"rare_rank": 5, "counts": -torch.arange(V)}, "numbers from 0 to 2"),
        (AgpsGating, {"rare_rank": V}, r"rare_rank in \[0, 30\)"),
        (AgpsGating, {"rare_rank": 28, "excluded": EXCLUDED}, r"\[0, 28\), as many tokens"),
    ],
)
def test_options_out_of_range(rule, options, message):
    with pytest.raises(ValueError, match=message):
        rule(V, **options)


@pytest.mark.parametrize("wrong", [torch.tensor([-5]), torch.tensor([V]), torch.rand(3)])
def test_targets_that_are_refused(wrong):
    """By rules that do not count them, too: an index from the end would be that of another token."""
    agps = AgpsGating(V, rare_rank=5, counts=torch.arange(V))
    for rule in (agps, FaceWeights(V), AggGating(V)):
        with pytest.raises(ValueError, match="expected targets"):
            rule(wrong)


def test_a_rule_in_a_checkpoint_is_refused():
    """It would be called again in the backward pass, and count twice."""
    rule, weight = AggGating(V, rare_fraction=0.3), torch.nn.Parameter(torch.randn(V, 4))

    def loss(features):
        logits = gated_linear(features, weight, None, targets(1), rule(targets(1)))
        return logits.logsumexp(-1).sum()

    with pytest.raises(ValueError, match="in torch's checkpoint"):
        checkpoint_of_torch(loss, torch.randn(2, 5, 4), use_reentrant=False)
    assert not rule.counter.current.any()


def test_an_update_ends_once_after_its_micro_batches():
    """Without `commit_update` nothing would ever be gated; an update without a micro-batch, or
    ended twice, would enter the window."""
    gating, weight = AggGating(V, rare_fraction=0.3), torch.nn.Parameter(torch.randn(V, 4))
    optimizer, other = (torch.optim.SGD([one], lr=0.1) for one in (weight, weight.detach().clone()))
    gating.is_trained_by = lambda stepped: stepped is optimizer
    for end in (gating.commit_update, gating.roll_back_update, None):
        gating(targets(1))
        other.step()  # that of another model
        gating(targets(2))
        optimizer.step()
        if end is not None:
            end()
    with pytest.raises(ValueError, match="call commit_update"):
        gating(targets(3))
    gating.commit_update()
    with pytest.raises(ValueError, match="found no micro-batch in this update"):
        gating.commit_update()
    assert gating.counter.updates == 2
    Gating(V).commit_update()  # a rule without counts needs none
