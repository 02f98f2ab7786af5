"""The objective by itself: without transformers, and without fairseq."""

import doctest
import subprocess
import sys

import pytest
import torch

import agg_fairseq.integrations.objective as module
from agg_fairseq.functional import agg_gates, gated_cross_entropy, rare_tokens
from agg_fairseq.integrations import GatedObjective, label_counts

V, D = 30, 8


def example(seed, rows=2, steps=5):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, steps, D, generator=generator), torch.randint(V, (rows, steps), generator=generator)


def test_examples():
    result = doctest.testmod(module)
    assert result.attempted > 0 and result.failed == 0


def test_imports_without_fairseq_and_transformers():
    program = """
import sys
for name in ("fairseq", "fairseq_cli", "hydra", "omegaconf", "transformers", "accelerate", "safetensors"):
    sys.modules[name] = None
from agg_fairseq.integrations import GatedObjective
try:
    import agg_fairseq.integrations.transformers
except ImportError as error:
    print(error)
"""
    found = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert "needs transformers 5" in found and ".[transformers]" in found


def test_gates_of_an_update_come_from_the_updates_before_it():
    """Two micro-batches per update, a window of two updates, and three updates before the one that is looked at."""
    objective = GatedObjective(V, agg_rare_fraction=0.3, agg_window=2, never_rare=[0])
    weight = torch.randn(V, D, requires_grad=True)
    for update in range(3):
        for part in range(2):
            objective.loss(example(10 * update + part)[0], weight, example(10 * update + part)[1])
        assert objective.micro_batches == 2
        objective.end_update()
    seen = torch.cat([example(10 * update + part)[1].flatten() for update in (1, 2) for part in (0, 1)])
    appearances = torch.bincount(seen, minlength=V)
    assert objective.counter.appearances.equal(appearances)
    rare = rare_tokens(appearances, 2, rare_fraction=0.3, never_rare=torch.arange(V) == 0)
    features, target = example(99)
    for _ in range(2):  # the same for each micro-batch
        weight.grad = None
        objective.loss(features, weight, target).backward()
        found = weight.grad
        weight.grad = None
        gated_cross_entropy(features, weight, target, gates=agg_gates(appearances, 2, rare)).loss.backward()
        assert found.equal(weight.grad)


def test_validation_is_not_counted():
    objective = GatedObjective(V)
    weight = torch.randn(V, D, requires_grad=True)
    with torch.no_grad():
        objective.loss(example(1)[0], weight, example(1)[1])
    objective.loss(example(2)[0], weight, example(2)[1])
    objective.end_update()
    assert objective.counter.appearances.equal(torch.bincount(example(2)[1].flatten(), minlength=V))


@pytest.mark.parametrize("term", ["dispersion_gamma", "adv_epsilon"])
def test_a_validation_loss_depends_on_the_weights_alone(term):
    objective, plain = GatedObjective(V, "mle", **{term: 0.5}), GatedObjective(V, "mle")
    features, target = example(1)
    weight, found = torch.randn(V, D, requires_grad=True), []
    for _ in range(2):
        with torch.no_grad():
            found.append(float(objective.loss(features, weight, target)))
        objective.end_update()
    assert found[0] == found[1]
    with torch.no_grad():
        assert (found[0] == float(plain.loss(features, weight, target))) is (term == "adv_epsilon")


def test_a_broken_off_update_is_forgotten():
    objective = GatedObjective(V)
    weight = torch.randn(V, D, requires_grad=True)
    objective.loss(example(1)[0], weight, example(1)[1])
    objective.discard_update()
    objective.loss(example(2)[0], weight, example(2)[1])
    objective.end_update()
    assert objective.counter.appearances.equal(torch.bincount(example(2)[1].flatten(), minlength=V))


@pytest.mark.parametrize("gates", ["both", "faded"])
def test_warns_once_where_most_tokens_are_rare(caplog, gates):
    objective = GatedObjective(V, agg_alpha=0.9, agg_window=2, agg_gates=gates)
    weight = torch.randn(V, D, requires_grad=True)
    for _ in range(4):
        objective.loss(example(1)[0], weight, example(1)[1])
        objective.end_update()
    assert sum("of the vocabulary is rare" in record.message for record in caplog.records) == (gates == "both")


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (None, "a state that it has saved"),
        ({"method": "agg", "vocabulary": 7, "counter": None}, "a state over 30 tokens, got 7"),
        ({"method": "agg", "vocabulary": V, "counter": {"vocabulary": V}}, "slots that do not fit together"),
    ],
)
def test_refuses_other_states(state, message):
    with pytest.raises(ValueError, match=message):
        GatedObjective(V).load_state_dict(state)


def test_state_keeps_the_window_that_was_asked_for():
    first = GatedObjective(V, agg_window=5)
    weight = torch.randn(V, D, requires_grad=True)
    for seed in range(4):
        first.loss(example(seed)[0], weight, example(seed)[1])
        first.end_update()
    second = GatedObjective(V, agg_window=2)
    second.load_state_dict(first.state_dict())
    assert (second.counter.window, second.counter.updates) == (2, 2)
    GatedObjective(V, "mle").load_state_dict(first.state_dict())  # needs no counts
    third = GatedObjective(V)
    third.load_state_dict(GatedObjective(V, "mle").state_dict())  # has none: the window starts empty
    assert third.counter.updates == 0


def test_label_counts_refuses_tokens_outside_the_vocabulary():
    with pytest.raises(ValueError, match=r"expected tokens in \[0, 4\), got 9"):
        label_counts([{"input_ids": [0, 9]}], 4)
