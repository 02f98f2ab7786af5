"""The loss of GatedLoss and its gradients beside those of transformers, of torch and of the naive
three logits; what it counts, and its state."""

import copy
import io

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

from agg_fairseq.errors import UserError
from agg_fairseq.functional import agg_gates, naive_gated_cross_entropy, rare_tokens
from agg_fairseq.integrations.transformers import GatedLoss
from tests.small_transformers import (
    VOCABULARY,
    batch,
    gpt2,
    gradients,
    in_bfloat16,
    llama_like,
    untied,
)


class MuReadout(nn.Linear):
    """The output layer of mup, which scales its input."""

    width = 4.0

    def forward(self, features):
        return super().forward(features / self.width)


def mup():
    model = untied()
    model.lm_head = MuReadout(16, VOCABULARY, bias=False)
    return model


MODELS = {
    "tied": gpt2,
    "untied": untied,
    "bias": lambda: llama_like("Phi", head_dim="default"),
    "scaled": lambda: llama_like("Granite", logits_scaling=0.3, head_dim="default"),
    "capped": lambda: llama_like("Gemma2", final_logit_softcapping=0.05),
    "mup": mup,
}


def shifted(labels):
    return F.pad(labels, (0, 1), value=-100)[:, 1:]


def used(model, way):
    """A plain model: one that has had a GatedLoss, or the copy of one that has it."""
    gated = GatedLoss(model, rare_fraction=0.3)
    if way == "deep copy":
        return copy.deepcopy(model)
    if way == "saved":
        torch.save(model, file := io.BytesIO())
        return torch.load(io.BytesIO(file.getvalue()), weights_only=False)
    if way == "bfloat16":
        in_bfloat16(model)
    gated.remove()
    return model


@pytest.mark.parametrize(
    ("kind", "items", "way"),
    [
        ("tied", 17, "saved"),
        ("untied", 17, "removed"),
        ("bias", torch.tensor(17), "deep copy"),
        ("scaled", None, "removed"),
        ("capped", 17, "bfloat16"),
        ("mup", None, "bfloat16"),
    ],
)
def test_plain_likelihood_is_that_of_transformers(kind, items, way):
    """Its mean, or divided by the number of targets that Trainer passes; with gradient
    checkpointing in one case."""
    model = used(MODELS[kind](), way)
    given = batch(ignored=[(0, 3), (0, 4), (2, 11)])
    more = {} if items is None else {"num_items_in_batch": items}
    output = model(**given, **more)
    assert output.logits is not None and output.loss.dtype == torch.float32
    expected = gradients(model, output.loss)
    gated = GatedLoss(model, "mle")
    calls = []
    if kind == "untied":
        model.gradient_checkpointing_enable()
        model.model.layers[0].mlp.register_forward_pre_hook(lambda *_: calls.append(1))
    found = model(**given, **more).loss
    if way == "bfloat16":
        assert not found.equal(model._original_forward(**given, **more).loss), "no autocast"
    tolerance = 0.01 if way == "bfloat16" else 1e-6
    assert_close(found, output.loss, rtol=tolerance, atol=tolerance)
    assert_close(gradients(model, found), expected, rtol=tolerance, atol=tolerance)
    assert len(calls) == 2 * (kind == "untied"), "checkpointing runs it twice"
    gated.commit_update()  # which knows of the loss


@pytest.mark.parametrize("kind", ["tied", "bias", "scaled", "capped"])
def test_agg_has_the_gradients_of_the_three_logits(kind):
    """With an update in the window; labels are −100 in places."""
    model = MODELS[kind]().double()
    gated = GatedLoss(model, rare_fraction=0.3, excluded=[0, 2])
    first, second = batch(seed=1), batch(ignored=[(0, 0), (1, 5)], seed=2)
    model(**first).loss.backward()
    gated.commit_update()
    found = model(**second).loss
    found_gradients = gradients(model, found)

    appearances = torch.bincount(first["labels"][:, 1:].flatten(), minlength=VOCABULARY)
    excluded = torch.zeros(VOCABULARY, dtype=torch.bool)
    excluded[[0, 2]] = True
    rare = rare_tokens(appearances, 1, rare_fraction=0.3, excluded=excluded)
    assert gated.objective.gates(None).rare.equal(rare)
    head, target = model.get_output_embeddings(), shifted(second["labels"])
    features = model.base_model(input_ids=second["input_ids"]).last_hidden_state
    changed = {"scaled": {"scale": 1 / 0.3}, "capped": {"softcap": 0.05}}.get(kind, {})
    changed |= {"bias": head.bias, "gates": agg_gates(appearances, 1, rare)}
    naive = naive_gated_cross_entropy(features, head.weight, target, **changed)
    naive = naive / (target != -100).sum()
    assert_close(found.double(), naive, rtol=1e-6, atol=1e-6)
    assert_close(found_gradients, gradients(model, naive), rtol=1e-9, atol=1e-9)


def test_labels_shifted_by_the_caller_and_given_by_position():
    model, given = gpt2(), batch(ignored=[(1, 4)])
    expected = gradients(model, model(**given).loss)
    gated, target = GatedLoss(model, rare_fraction=0.3), shifted(given["labels"])
    found = gradients(model, model(**given, shift_labels=target).loss)
    assert_close(found, expected, rtol=1e-6, atol=1e-6)
    gated.commit_update()
    counts = torch.bincount(target[target != -100], minlength=VOCABULARY)
    assert gated.objective.counter.appearances.equal(counts)
    others = target.where(target == -100, 1)  # of the same labels
    losses = [model(**given, shift_labels=labels).loss for labels in (target, others)]
    gated.remove()
    assert_close(losses[1], model(**given, shift_labels=others).loss)
    GatedLoss(model, "mle")
    by_position = model(given["input_ids"], *[None] * 7, given["labels"]).loss
    assert_close(gradients(model, by_position), expected, rtol=1e-6, atol=1e-6)


def test_changes_after_the_first_step_are_seen():
    """Of a soft cap, a scale, a number of the output layer, and the function of the loss."""
    capped, scaled, readout = MODELS["capped"](), MODELS["scaled"](), mup()
    for model, owner, name, value in (
        (capped, capped.config, "final_logit_softcapping", 0.02),
        (scaled, scaled.config, "logits_scaling", 3),
        (readout, readout.lm_head, "width", torch.tensor(0.5)),
    ):
        gated = GatedLoss(model, "mle")
        model(**batch())
        setattr(owner, name, value)
        if hasattr(model, name):
            setattr(model, name, value)
        found = model(**batch()).loss
        gated.remove()
        assert_close(found, model(**batch()).loss)
    GatedLoss(scaled, "mle")
    scaled.loss_function = lambda logits, labels, **options: logits.sum()
    with pytest.raises(UserError, match="the loss of causal language models"):
        scaled(**batch())


@pytest.mark.parametrize(
    ("way", "method"),
    [("LBFGS", "agg"), ("SAM", "agg"), ("SAM", "face"), ("checkpoint", "agg")],
)
def test_a_batch_counts_once_per_update(way, method):
    """However often its loss is computed; another batch, or another update, counts again."""
    model = gpt2()
    gated = GatedLoss(model, method)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if way == "LBFGS":
        optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)

    def loss_of(ids, labels):
        return model(ids, labels=labels).loss

    def closure():
        optimizer.zero_grad()
        for given in batches:
            if way == "checkpoint":
                checkpoint(loss_of, *given.values(), use_reentrant=False).backward()
            else:
                loss_of(*given.values()).backward()
        return torch.ones(())

    for update in (1, 2):
        batches = [batch(seed=1), batch(seed=2)]
        if way == "SAM":
            closure()  # at the weights from which the first step goes up
        optimizer.step(closure)
        gated.commit_update()
        assert gated.objective.counter.appearances.sum() == update * 2 * 3 * 11


@pytest.mark.parametrize("is_numpy", [True, False])
def test_labels_in_the_same_memory_are_others(is_numpy):
    model = gpt2()
    gated = GatedLoss(model, rare_fraction=0.3)
    ids = batch()["input_ids"]
    with torch.inference_mode(not is_numpy):
        memory = ids.clone()
    for value in (3, 4):
        memory.numpy()[:] = value
        labels = torch.from_numpy(memory.numpy()) if is_numpy else memory
        model(ids, labels=labels).loss.backward()
    gated.commit_update()
    assert gated.objective.counter.appearances[3:5].tolist() == [33, 33]


def test_a_state_is_restored_but_for_the_window():
    """The state of a method without counts leaves the window empty."""
    first, likelihood = GatedLoss(gpt2(), window=5), GatedLoss(gpt2(), "mle")
    for seed in range(4):
        first.model(**batch(seed=seed))
        first.commit_update()
    second, third = GatedLoss(gpt2(), window=2), GatedLoss(gpt2())
    second.load_state_dict(first.state_dict())
    counter = second.objective.counter
    last = torch.cat([batch(seed=2)["labels"][:, 1:], batch(seed=3)["labels"][:, 1:]])
    assert (counter.window, counter.updates) == (2, 2)
    assert counter.appearances.equal(last.flatten().bincount(minlength=VOCABULARY))
    likelihood.load_state_dict(first.state_dict())  # needs no counts
    third.load_state_dict(likelihood.state_dict())
    assert third.objective.counter.updates == 0
    with pytest.raises(ValueError, match="over 61 tokens, got 7"):
        third.load_state_dict(GatedLoss(gpt2(vocab_size=7)).state_dict())
