"""The objectives by themselves, without fairseq and transformers: gates, terms, the life of an
update, and options."""

import io
import math

import pytest
import torch

from agg_fairseq.functional import (
    agg_gates,
    agps_gates,
    cosine_regularizer,
    gated_likelihood,
    naive_gated_cross_entropy,
    previous_tokens,
    rare_tokens,
    tokens_from_rank,
)
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


def loss_of(objective, seed, weight):
    features, target = example(seed)
    return objective(features, weight, target).loss


def counts(*seeds):
    tokens = torch.cat([example(seed)[1].flatten() for seed in seeds])
    return torch.bincount(tokens[tokens >= 0], minlength=V)


@pytest.mark.parametrize("method", ["agg", "agps"])
def test_gates_and_terms_are_those_of_the_naive_implementation(method):
    """Every term at once, two micro-batches per update, a window of two updates, in the fourth
    update; the terms of the embedding count once per update, as the sum is divided by its
    targets."""
    shared = {"excluded": EXCLUDED, "label_smoothing": 0.1, "padding_row": 0}
    shared |= {"ul_alpha": 0.5, "adv_epsilon": 0.2, "cosreg_gamma": 2.0}
    objective = AggObjective(V, rare_fraction=0.3, window=2, **shared)
    occurrences, weight = torch.arange(V).flip(0), embedding()
    if method == "agps":
        objective = AgpsObjective(V, rare_rank=10, counts=occurrences, mu1=30, mu2=4, **shared)
    for update in range(3):
        for part in range(2):
            loss_of(objective, 10 * update + part, weight)
        objective.commit_update()
    for features, target in (example(98), example(99)):  # the same gates for each micro-batch
        if method == "agg":
            appearances = counts(10, 11, 20, 21)
            rare = rare_tokens(appearances, 2, rare_fraction=0.3, excluded=EXCLUDED)
            gates = agg_gates(appearances, 2, rare)
        else:
            rare = tokens_from_rank(occurrences, 10, EXCLUDED)
            present = torch.bincount(target[target >= 0], minlength=V) > 0
            gates = agps_gates(occurrences, present, rare, mu1=30, mu2=4)
        features.requires_grad_()
        naive = naive_gated_cross_entropy(
            features, weight, target, gates=gates, label_smoothing=0.1, adv_epsilon=0.2,
            candidates=previous_tokens(target, -100), ul_alpha=0.5,
        )  # fmt: skip
        targets = (target >= 0).sum()
        cosreg = cosine_regularizer(weight, padding_row=0)
        expected = naive + targets * 2 * cosreg
        output = objective(features, weight, target)
        torch.testing.assert_close(output.loss, expected)
        found = torch.autograd.grad(output.loss, (features, weight))
        torch.testing.assert_close(found, torch.autograd.grad(expected, (features, weight)))
        terms = gated_likelihood(
            features, weight, target, adv_epsilon=0.2, candidates=previous_tokens(target, -100)
        )
        for name, sums in (("ul_loss", terms.ul_loss), ("adv_loss", terms.adv_loss)):
            total, number = output.logged[name]  # in bits
            assert (total.item(), number) == (
                pytest.approx(sums.sum().item() / math.log(2)),
                targets,
            )
        assert output.logged["cosreg"] == (cosreg, 1)
        if method == "agg":
            size = output.logged["rare_tokens"][0]
            assert size == rare.sum() and output.logged["rare_share"] == (size, V)


def test_defaults_are_those_of_the_papers():
    agg, agps = AggObjective(V), AgpsObjective(V, rare_rank=3)
    assert (agg.counter.window, agg.alpha, agg.which) == (1000, 0.03, "both")
    assert agps.scaling == {"mu1": 500, "mu2": 20, "variant": "eq15"}


def test_what_is_not_counted():
    """Validation, and an update that was skipped or broken off; the loss of validation has no
    margin."""
    objective = AggObjective(V, rare_fraction=0.3, adv_epsilon=0.5)
    plain = Objective(V)
    weight = embedding()
    with torch.no_grad():
        assert loss_of(objective, 1, weight) == loss_of(plain, 1, weight)
    assert loss_of(objective.eval(), 1, weight) == loss_of(plain, 1, weight)
    objective.train()
    for end in (objective.roll_back_update, objective.commit_update):
        loss_of(objective, 2, weight)
        end()
    assert objective.counter.updates == 1 and objective.counter.appearances.equal(counts(2))
    with pytest.raises(IndexError):
        objective(example(1)[0], weight, example(1)[1] + 99)


def gates_of(objective, seeds):
    gates = []
    for seed in seeds:
        gates.append(objective.micro_batch(example(seed)[1]).gates)
        objective.commit_update()
    return gates


@pytest.mark.parametrize("threshold", [{"alpha": 0.6}, {"rare_fraction": 0.3}])
def test_gates_come_from_the_updates_before(threshold):
    """A window of two: none for the first update, then those of the one or two before. Special
    tokens are common."""
    first, *others = gates_of(AggObjective(V, window=2, excluded=EXCLUDED, **threshold), range(6))
    assert first is None
    for number, gates in enumerate(others, 1):
        appearances = counts(*range(max(0, number - 2), number))
        rare = rare_tokens(appearances, min(number, 2), excluded=EXCLUDED, **threshold)
        expected = agg_gates(appearances, min(number, 2), rare)
        assert rare.any() and not rare[EXCLUDED].any()
        assert all(
            torch.equal(getattr(gates, name), vector) for name, vector in vars(expected).items()
        )


def test_the_update_under_way_may_count():
    """As one update more than there are in memory, so that the first update is gated too."""
    objective = AggObjective(V, alpha=0.6, window=3, count_current_batch=True)
    for number, gates in enumerate(gates_of(objective, range(2))):
        assert torch.equal(gates.rare, counts(*range(number + 1)) / (number + 1) < 0.6)


def test_a_fixed_group_stays():
    objective = AggObjective(V, rare_fraction=0.3, window=2)
    for seed in range(5):
        objective.fix_group()
        assert (objective.static_rare is not None) == (objective.counter.updates == 2)
        gates_of(objective, [seed])
    for gates in gates_of(objective, (9, 8, 7)):
        assert torch.equal(gates.rare, objective.static_rare)


@pytest.mark.parametrize("is_dummy", [False, True])
@pytest.mark.parametrize("kind", [AggObjective, FaceObjective])
def test_a_dummy_batch_is_not_counted(kind, is_dummy):
    """AGG counts targets, FACE its predictions where there is a target."""
    objective, weight, (features, target) = kind(V), embedding(), example(1)
    objective(features, weight, target, micro_batch=objective.micro_batch(target, is_dummy))
    tokens = target if kind is AggObjective else (features @ weight.t()).argmax(-1)
    expected = torch.bincount(tokens[target >= 0], minlength=V)
    assert objective.counter.current.equal(0 * expected if is_dummy else expected)


def test_weights_of_face_by_hand():
    """f = (4, 1, 0): 1 − f/4 = (0, 3/4, 1), times 3 / (7/4). No output, or equal output, is plain
    likelihood."""
    expected = {(4, 1, 0): [0.0, 9 / 7, 12 / 7], (5, 4): [0, 2], (0, 0): [1, 1], (3, 3): [1, 1]}
    for counts, weights in expected.items():
        assert face_weights(torch.tensor(counts)).tolist() == pytest.approx(weights)


@pytest.mark.parametrize("method", ["agg", "agg, fixed", "face"])
def test_a_state_goes_on_exactly(method):
    """From a file, in the middle of an update, into an objective that has counted something else;
    the first loss after it is that of the first objective, and nothing is left to be called."""

    def new():
        return (
            FaceObjective(V) if method == "face" else AggObjective(V, rare_fraction=0.3, window=2)
        )

    first, second, weight = new(), new(), embedding()
    for seed in range(3):
        for objective, offset in ((first, 0), (second, 20)):
            loss_of(objective, offset + seed, weight)
            objective.commit_update()
    if method == "agg, fixed":
        first.fix_group()
    loss_of(first, 3, weight)
    torch.save(first.state_dict(), file := io.BytesIO())
    file.seek(0)
    assert second.load_state_dict(torch.load(file, weights_only=True)).missing_keys == []
    for seed in (4, 5, 6):
        gradients = []
        for each in (first, second):
            gradients.append(torch.autograd.grad(loss_of(each, seed, weight), weight)[0])
            each.commit_update()
        assert torch.equal(*gradients)


def test_a_state_of_another_method_is_refused():
    agg, face = AggObjective(V, rare_fraction=0.3, window=2), FaceObjective(V)
    for state, kind in ((agg.state_dict(), face), (face.state_dict(), agg), ({}, agg)):
        with pytest.raises((ValueError, RuntimeError)):
            kind.load_state_dict(state)
    with pytest.raises(ValueError, match="expected a state over 29 tokens"):
        AggObjective(V - 1, window=2).load_state_dict(agg.state_dict())


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (AggObjective, {"alpha": float("nan")}, "alpha between 0 and 1, both excluded, got nan"),
        (AggObjective, {"rare_fraction": 0.0}, "rare_fraction between 0 and 1"),
        (AggObjective, {"alpha": 0.1, "rare_fraction": 0.1}, "drop one of them"),
        (AgpsObjective, {"rare_rank": V}, r"rare_rank in \[0, 30\)"),
        (AgpsObjective, {"rare_rank": 28, "excluded": EXCLUDED}, r"\[0, 28\), as many tokens"),
        (AgpsObjective, {"rare_rank": 3, "mu1": 0.0}, "mu1 above 0, got 0"),
        (Objective, {"ul_alpha": -1.0}, "ul_alpha of at least 0, got -1"),
    ],
)
def test_options_out_of_range(kind, options, message):
    with pytest.raises(ValueError, match=message):
        kind(V, **options)
