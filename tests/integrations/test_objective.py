"""The objective by itself: without transformers, and without fairseq. `AggState` and `AgpsState` are tested apart."""

import pytest
import torch

from agg_fairseq.functional import (
    Unlikelihood,
    agg_gates,
    agps_gates,
    cosine_regularizer,
    mean_row_penalty,
    naive_gated_cross_entropy,
    previous_tokens,
    rare_tokens,
    tokens_from_rank,
)
from agg_fairseq.functional.terms import TERMS
from agg_fairseq.integrations import GatedObjective, label_counts

V, D = 30, 8
WEIGHTS = {"ul_alpha": 0.5, "z_loss": 0.1, "adv_epsilon": 0.2, "cosreg_gamma": 2.0, "mu_loss": 3.0}


def example(seed, rows=2, steps=5):
    """Features and targets, of which two are ignored."""
    generator = torch.Generator().manual_seed(seed)
    target = torch.randint(V, (rows, steps), generator=generator)
    target[0, :2] = -100
    return torch.randn(rows, steps, D, dtype=torch.float64, generator=generator), target


def embedding():
    generator = torch.Generator().manual_seed(7)
    return torch.randn(V, D, dtype=torch.float64, generator=generator).requires_grad_()


def counts(*targets):
    tokens = torch.cat([target.flatten() for target in targets])
    return torch.bincount(tokens[tokens >= 0], minlength=V)


@pytest.mark.parametrize("method", ["agg", "agps"])
def test_gates_and_terms_are_those_of_the_naive_form(method):
    """Two micro-batches per update, a window of two updates, and three updates before the one that is looked at.

    Every term at once; those of the embedding count once per update, as the sum is divided by its targets.
    """
    options = {"agg_rare_fraction": 0.3, "agg_window": 2}
    occurrences = torch.arange(V).flip(0)
    if method == "agps":
        options = {"agps_counts": occurrences, "agps_rare_rank": 10, "agps_mu1": 30, "agps_mu2": 4}
    assert set(WEIGHTS) == {term.option for term in TERMS}
    objective = GatedObjective(V, method, never_rare=[0, 29], label_smoothing=0.1, **options, **WEIGHTS)
    weight, special = embedding(), torch.tensor([0, 29])
    never_rare = torch.zeros(V, dtype=torch.bool).index_fill(0, special, True)
    for update in range(3):
        for part in range(2):
            objective.loss(example(10 * update + part)[0], weight, example(10 * update + part)[1])
        assert objective.micro_batches == 2
        objective.end_update()
    appearances = counts(*(example(10 * update + part)[1] for update in (1, 2) for part in (0, 1)))
    for features, target in (example(98), example(99)):  # the same gates for each micro-batch
        if method == "agg":
            assert objective.counter.appearances.equal(appearances)
            rare = rare_tokens(appearances, 2, rare_fraction=0.3, never_rare=never_rare)
            gates = agg_gates(appearances, 2, rare)
        else:
            rare = tokens_from_rank(occurrences, 10, never_rare)
            gates = agps_gates(occurrences, counts(target) > 0, rare, mu1=30, mu2=4)
        features.requires_grad_()
        naive = naive_gated_cross_entropy(
            features, weight, target, gates=gates, label_smoothing=0.1, z_loss=0.1, adversarial=0.2,
            unlikelihood=Unlikelihood(0.5, previous_tokens(target, -100)),
        )  # fmt: skip
        expected = naive + (target >= 0).sum() * (2 * cosine_regularizer(weight) + 3 * mean_row_penalty(weight))
        loss = objective.loss(features, weight, target)
        torch.testing.assert_close(loss, expected)
        torch.testing.assert_close(*(torch.autograd.grad(value, (features, weight)) for value in (loss, expected)))


def test_what_is_not_counted():
    """Validation, a skipped update, and one that was broken off; the loss of validation has no margin."""
    objective, plain = GatedObjective(V, agg_rare_fraction=0.3, adv_epsilon=0.5), GatedObjective(V, "mle")
    weight = embedding()
    with torch.no_grad():
        found = objective.loss(example(1)[0], weight, example(1)[1])
        assert found == plain.loss(example(1)[0], weight, example(1)[1])
    for end in (objective.discard_update, lambda: objective.end_update(skipped=True), objective.end_update):
        objective.loss(*(example(2)[0], weight, example(2)[1]))
        end()
    assert objective.counter.updates == 1 and objective.counter.appearances.equal(counts(example(2)[1]))


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (None, "a state that it has saved"),
        ({"method": "agg", "vocabulary": 7, "counter": None}, "a state over 30 tokens, got 7"),
        ({"method": "agg", "vocabulary": V, "counter": {"vocabulary": V}}, "a state that it has saved, got one with"),
    ],
)
def test_refuses_other_states(state, message):
    with pytest.raises(ValueError, match=message):
        GatedObjective(V).load_state_dict(state)


def test_state_keeps_the_window_that_was_asked_for():
    first, weight = GatedObjective(V, agg_window=5), embedding()
    for seed in range(4):
        first.loss(example(seed)[0], weight, example(seed)[1])
        first.end_update()
    second = GatedObjective(V, agg_window=2)
    second.load_state_dict(first.state_dict())
    assert (second.counter.window, second.counter.updates) == (2, 2)
    earlier = {name: first.state_dict()[name] for name in ("method", "vocabulary", "counter")} | {"updates": 4}
    second.load_state_dict(earlier)  # of version 0.2.0
    assert second.counter.appearances.equal(counts(example(2)[1], example(3)[1]))
    GatedObjective(V, "mle").load_state_dict(first.state_dict())  # needs no counts
    third = GatedObjective(V)
    third.load_state_dict(GatedObjective(V, "mle").state_dict())  # has none: the window starts empty
    assert third.counter.updates == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "f2"}, "expected method to be one of"),
        ({"agg_alpha": 0.1, "agg_rare_fraction": 0.1}, "drop one of them"),
        ({"method": "mle", "agg_gates": "both"}, "begin with agg_"),
        ({"agps_mu1": 3.0}, "begin with agps_"),
        ({"method": "agps", "agps_rare_rank": 3}, "needs agps_counts"),
        ({"method": "agps", "agps_rare_rank": 3, "agps_counts": torch.ones(4)}, "of shape"),
        ({"ul_alpha": -1.0}, "ul_alpha of at least 0"),
        ({"adv_epsilon": float("nan")}, "adv_epsilon of at least 0"),
        ({"label_smoothing": 1.0}, "label_smoothing in"),
        ({"never_rare": [V]}, "never_rare tokens in"),
    ],
)
def test_refuses_options(options, message):
    with pytest.raises(ValueError, match=message):
        GatedObjective(V, **options)
    with pytest.raises(TypeError, match="found dispersion_gamma, expected an option or one of ul_alpha, z_loss"):
        GatedObjective(V, dispersion_gamma=0.1)


def test_label_counts_refuses_tokens_outside_the_vocabulary():
    with pytest.raises(ValueError, match=r"expected tokens in \[0, 4\), got 9"):
        label_counts([{"input_ids": [0, 9]}], 4)
