"""The objectives by themselves: gates, terms, the life of an update, and options."""

import copy

import pytest
import torch
from torch.distributed import checkpoint

from agg_fairseq.functional import agg_gates, rare_tokens
from agg_fairseq.objective import AggObjective, AgpsObjective, FaceObjective, Objective
from agg_fairseq.objective.face import face_weights

V, D = 30, 8
EXCLUDED = torch.zeros(V, dtype=torch.bool).index_fill(0, torch.tensor([0, 29]), True)


def example(seed, rows=2, steps=5):
    """Features and targets, of which two are ignored."""
    generator = torch.Generator().manual_seed(seed)
    target = torch.randint(V, (rows, steps), generator=generator)
    target[0, :2] = -100
    return torch.randn(rows, steps, D, dtype=torch.float64, generator=generator), target


def embedding():
    generator = torch.Generator().manual_seed(7)
    return torch.randn(V, D, dtype=torch.float64, generator=generator).requires_grad_()


def loss_function(objective, seed, weight):
    features, target = example(seed)
    return objective(features, weight, target).loss


def counts(*seeds):
    tokens = torch.cat([example(seed)[1].flatten() for seed in seeds])
    return torch.bincount(tokens[tokens >= 0], minlength=V)


def test_what_is_not_counted():
    """Validation, and an update that was skipped or broken off; the loss of validation has no
    margin."""
    objective = AggObjective(V, rare_fraction=0.3, adv_epsilon=0.5)
    plain = Objective(V)
    weight = embedding()
    with torch.no_grad():
        assert loss_function(objective, 1, weight) == loss_function(plain, 1, weight)
    assert loss_function(objective.eval(), 1, weight) == loss_function(plain, 1, weight)
    objective.train()
    for end in (objective.roll_back_update, objective.commit_update):
        loss_function(objective, 2, weight)
        end()
    assert objective.counter.updates == 1 and objective.counter.appearances.equal(counts(2))


def form_gates(objective, seeds):
    gates = []
    for seed in seeds:
        gates.append(objective.micro_batch(example(seed)[1]).gates)
        objective.commit_update()
    return gates


@pytest.mark.parametrize("threshold", [{"alpha": 0.6}, {"rare_fraction": 0.3}])
def test_gates_come_from_the_updates_before(threshold):
    """A window of two: none for the first update, then those of the one or two before. Special
    tokens are common."""
    objective = AggObjective(V, window=2, excluded=EXCLUDED, **threshold)
    first, *others = form_gates(objective, range(6))
    copied = copy.deepcopy(objective)
    assert copied.gates(None).g1.equal(objective.gates(None).g1)
    other = AggObjective(V, window=2)
    form_gates(other, (7, 8))
    copied.counter.load_state_dict(other.counter.state_dict())  # without that of the objective
    expected = rare_tokens(counts(7, 8), 2, excluded=EXCLUDED, **threshold)
    assert copied.gates(None).rare.equal(expected)
    assert first is None
    for number, gates in enumerate(others, 1):
        appearances = counts(*range(max(0, number - 2), number))
        rare = rare_tokens(appearances, min(number, 2), excluded=EXCLUDED, **threshold)
        expected = agg_gates(appearances, min(number, 2), rare)
        assert rare.any() and not rare[EXCLUDED].any()
        assert gates.rare.equal(rare)
        assert gates.g1.equal(expected.g1) and gates.g2.equal(expected.g2)


def test_a_fixed_group_stays():
    objective = AggObjective(V, rare_fraction=0.3, window=2)
    for seed in range(5):
        objective.fix_group()
        assert (objective.static_rare is not None) == (objective.counter.updates == 2)
        form_gates(objective, [seed])
    for gates in form_gates(objective, (9, 8, 7)):
        assert torch.equal(gates.rare, objective.static_rare)


@pytest.mark.parametrize("is_dummy", [False, True])
def test_a_dummy_batch_is_not_counted(is_dummy):
    """AGG counts targets, FACE its predictions where there is a target."""
    weight, (features, target) = embedding(), example(1)
    predicted = (features @ weight.t()).argmax(-1)
    for objective, tokens in ((AggObjective(V), target), (FaceObjective(V), predicted)):
        objective(features, weight, target, micro_batch=objective.micro_batch(target, is_dummy))
        expected = torch.bincount(tokens[target >= 0], minlength=V)
        assert objective.counter.current.equal(expected * (not is_dummy))


@pytest.mark.parametrize("kind", [Objective, AggObjective, FaceObjective])
@pytest.mark.parametrize("shape", [(0, 5), (2, 0)])
def test_a_batch_of_nothing(kind, shape):
    objective, weight, target = kind(V), embedding(), torch.zeros(shape, dtype=torch.int64)
    features = torch.ones(*shape, D, dtype=torch.float64)
    micro_batch = objective.micro_batch(target)
    logits = features @ weight.t()
    for output in (
        objective(features, weight, target),
        objective.from_logits(logits, weight, target, micro_batch),
    ):
        assert output.loss == 0 and output.losses.shape == shape


def test_weights_of_face_by_hand():
    """f = (4, 1, 0): 1 − f/4 = (0, 3/4, 1), times 3 / (7/4). No output, or equal output, is plain
    likelihood."""
    expected = {(4, 1, 0): [0.0, 9 / 7, 12 / 7], (1, 0, 0): [0.0, 1.5, 1.5], (5, 4): [0, 2]}
    expected |= {(0, 0): [1, 1], (3, 3): [1, 1]}
    for counts, weights in expected.items():
        assert face_weights(torch.tensor(counts)).tolist() == pytest.approx(weights)


@pytest.mark.parametrize("way", ["torch", "distributed"])
@pytest.mark.parametrize("method", ["agg", "agg, fixed", "face"])
@pytest.mark.filterwarnings("ignore:torch.distributed")
def test_a_state_goes_on_exactly(method, way, tmp_path):
    if method == "face":
        first, second = FaceObjective(V), FaceObjective(V)
    else:
        first, second = (AggObjective(V, rare_fraction=0.3, window=2) for _ in range(2))
    weight = embedding()
    for seed in range(3):
        for objective, offset in ((first, 0), (second, 20)):
            loss_function(objective, offset + seed, weight)
            objective.commit_update()
    if method == "agg, fixed":
        first.fix_group()
    loss_function(first, 3, weight)
    if way == "torch":
        torch.save(first.state_dict(), tmp_path / "state.pt")
        second.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    else:  # where the state has other sizes than that of the second
        checkpoint.save({"objective": first}, checkpoint_id=tmp_path)
        checkpoint.load({"objective": second}, checkpoint_id=tmp_path)
    for seed in (4, 5, 6):
        gradients = []
        for objective in (first, second):
            gradients += torch.autograd.grad(loss_function(objective, seed, weight), weight)
            objective.commit_update()
        assert torch.equal(*gradients)


def test_a_state_of_another_method_is_refused():
    """What follows from the data is in no state."""
    agg, face = AggObjective(V, rare_fraction=0.3, window=2, excluded=EXCLUDED), FaceObjective(V)
    agps = AgpsObjective(V, rare_rank=5, counts=torch.arange(V), excluded=EXCLUDED)
    assert {*agg.state_dict()} == {"_extra_state", *face.state_dict()} and not agps.state_dict()
    for state, kind in ((agg.state_dict(), face), (face.state_dict(), agg), ({}, agg)):
        with pytest.raises((ValueError, RuntimeError)):
            kind.load_state_dict(state)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (AggObjective, {"alpha": float("nan")}, "alpha between 0 and 1, both excluded, got nan"),
        (AggObjective, {"rare_fraction": 0.0}, "rare_fraction between 0 and 1"),
        (AgpsObjective, {"rare_rank": V}, r"rare_rank in \[0, 30\)"),
        (AgpsObjective, {"rare_rank": 28, "excluded": EXCLUDED}, r"\[0, 28\), as many tokens"),
        (Objective, {"ul_alpha": -1.0}, "ul_alpha of at least 0, got -1"),
        (Objective, {"adv_epsilon": float("nan")}, "adv_epsilon of at least 0"),
        (Objective, {"label_smoothing": 1.1}, r"\[0, 1\]"),
    ],
)
def test_options_out_of_range(kind, options, message):
    with pytest.raises(ValueError, match=message):
        kind(V, **options)


def test_an_update_that_has_not_ended_is_an_error():
    """Without `commit_update`, nothing would ever be gated."""
    objective, weight = AggObjective(9, rare_fraction=0.3), torch.nn.Parameter(torch.randn(9, 4))
    optimizer, y = torch.optim.SGD([weight], lr=0.1), torch.tensor([[1, 2, 2]])
    for end in (objective.commit_update, objective.roll_back_update, None):
        for _ in range(2):  # micro-batches
            objective(torch.randn(1, 3, 4), weight, y).loss.backward()
        optimizer.step()
        if end is not None:
            end()
    with pytest.raises(ValueError, match="call commit_update"):
        objective(torch.randn(1, 3, 4), weight, y)
