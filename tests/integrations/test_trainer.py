"""GatedHead as a callback of Trainer, with accelerate, and with several workers."""

from types import SimpleNamespace

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import GradientState
from torch.testing import assert_close

from agg_fairseq.errors import UserError
from agg_fairseq.integrations import factorize_head, label_counts
from agg_fairseq.integrations import transformers as integration
from agg_fairseq.integrations.transformers import GatedHead
from tests.conftest import run_command
from tests.integrations import sharding
from tests.small_transformers import VOCABULARY, batch, dataset, gpt2, gradients, trainer


@pytest.fixture(autouse=True)
def _accelerate_forgets():
    """A training that was broken off leaves a micro-batch that does not end an update."""
    yield
    GradientState._reset_state()


def test_trainer_counts_one_slot_per_update(tmp_path):
    """22 examples in batches of 2, 3 of them per update, the last update of an epoch with 2: 4
    updates per epoch. Validation and a skipped update are not counted."""
    model = gpt2()
    gated = GatedHead(model, rare_fraction=0.2)
    training = trainer(model, tmp_path, gated, num_train_epochs=1)
    training.train()
    counter = gated.objective.counter
    assert (counter.window, counter.updates) == (4, 4)
    assert counter.appearances.equal(label_counts(dataset(), VOCABULARY))
    training.evaluate()
    model(**batch(seed=1)).loss.backward()
    # as Trainer says it
    gated.on_optimizer_step(None, None, None, optimizer=SimpleNamespace(step_was_skipped=True))
    assert counter.updates == 4


@pytest.mark.parametrize("window", [None, 12])
def test_the_window_of_an_epoch_is_bounded(tmp_path, monkeypatch, window):
    """12 updates in at most 5 slots, of 3 updates each; a window that is given has one for each."""
    monkeypatch.setattr(integration, "MOST_SLOTS", 5)
    model = gpt2()
    gated = GatedHead(model, rare_fraction=0.2, window=window)
    arguments = {"gradient_accumulation_steps": 1, "max_steps": 13}
    trainer(model, tmp_path, gated, dataset(24), **arguments).train()
    counter = gated.objective.counter
    assert counter.window == 12 and (10 if window is None else 12) <= counter.updates <= 12
    assert counter.appearances.sum() == counter.updates * 2 * 11
    assert (len(counter.get_extra_state()[0]["bytes"]) <= 5) == (window is None)


def test_trainer_trains_as_with_its_own_loss(tmp_path):
    """Plain likelihood through all of Trainer, with gradient accumulation and clipping."""
    own, ours = gpt2(), gpt2()
    expected = trainer(own, tmp_path).train().training_loss
    found = trainer(ours, tmp_path, GatedHead(ours, "mle")).train().training_loss
    assert found == pytest.approx(expected, rel=1e-5)
    assert_close(ours.state_dict(), own.state_dict(), rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_trainer_resumes_bit_for_bit(tmp_path, caplog):
    """With gradient accumulation and dropout, from the middle of an epoch, in any folder."""

    def trained(**more):
        model = gpt2(resid_pdrop=0.1, embd_pdrop=0.1, attn_pdrop=0.1)
        gated = GatedHead(model, rare_fraction=0.2, adv_epsilon=0.05)
        training = trainer(
            model, tmp_path / "run", gated, save_strategy="steps", save_steps=5,
            restore_callback_states_from_checkpoint=bool(more),
        )  # fmt: skip
        training.train(**more)
        assert training.state.global_step == 8
        return model.state_dict(), gated.state_dict()["counter._extra_state"][0]

    weights, counts = trained()
    folder = (tmp_path / "run" / "checkpoint-5").rename(tmp_path / "elsewhere")
    found, found_counts = trained(resume_from_checkpoint=str(folder))
    assert_close(found, weights, rtol=0, atol=0)
    for name in ("sizes", "tokens", "counts", "current"):
        assert found_counts[name].equal(counts[name])
    assert "GatedHead" not in (folder / "trainer_state.json").read_text() + caplog.text
    schedule = torch.load(folder / "scheduler.pt", weights_only=True)
    assert schedule.pop("gated_loss")["counter._extra_state"][0]["bytes"].numel() == 4
    torch.save(schedule, folder / "scheduler.pt")
    _, found_counts = trained(resume_from_checkpoint=str(folder))
    assert found_counts["sizes"].numel() == 3
    assert "found no counts in the scheduler.pt" in caplog.text


@pytest.mark.parametrize(
    "kind", ["label smoothing", "a loss of the user's", "another model", "not a callback"]
)
def test_trainer_refuses_another_loss_or_model(tmp_path, kind):
    model, smoothing = gpt2(), 0.1 * (kind == "label smoothing")
    gated = GatedHead(model, rare_fraction=0.2)
    trained = gpt2() if kind == "another model" else model
    words = "no loss was computed in this update by the model that GatedHead was made with"
    if kind == "not a callback":
        gated, words = None, "the optimizer has stepped, but the update has not ended"
    training = trainer(trained, tmp_path, gated, label_smoothing_factor=smoothing)
    if kind == "a loss of the user's":
        training.compute_loss_func = lambda outputs, *_, **__: outputs.logits.float().mean()
    with pytest.raises(UserError, match=words):
        training.train()


@pytest.mark.parametrize("kind", ["tied", "factorized"])
def test_a_batch_without_targets_changes_nothing(kind):
    """Its loss is 0/0 as in transformers, and its gradient 0; it is an update for the counts."""
    model, options = gpt2(), {"rare_fraction": 0.3}
    if kind == "factorized":
        factorize_head(model, torch.arange(VOCABULARY) % 3)
        options = {"method": "mle"}
    gated = GatedHead(model, **options)
    given = {**batch(), "labels": torch.full((3, 12), -100)}
    for more in ({}, {"num_items_in_batch": 0}, {"num_items_in_batch": torch.tensor(0)}):
        loss = model(**given, **more).loss
        assert loss.isnan()
        assert not any(gradient.any() for gradient in gradients(model, loss).values())
        gated.commit_update()
    if kind == "tied":
        assert gated.objective.counter.updates == 3


def test_accumulation_of_accelerate():
    """`commit_update` may follow each micro-batch, as the step of accelerate's optimizer does."""
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = gpt2()
    gated = GatedHead(model, rare_fraction=0.3)
    wrapped, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for seed in range(4):
        with accelerator.accumulate(wrapped):
            accelerator.backward(wrapped(**batch(seed=seed)).loss)
            optimizer.step()
            optimizer.zero_grad()
            gated.commit_update()
    counter = gated.objective.counter
    assert (counter.updates, int(counter.appearances.sum())) == (2, 4 * 3 * 11)


@pytest.mark.slow
def test_several_workers_and_compiled_models_train_as_one(tmp_path):
    """DDP, FSDP and FSDP2 in float64, Trainer with DDP and with `fsdp`, and a resume of each;
    torch.compile."""
    sharding.main(tmp_path)
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2)
    run_command("python", *launcher, "-m", "tests.integrations.sharding", tmp_path)
    alone = torch.load(tmp_path / "1.pt", weights_only=True)
    together = torch.load(tmp_path / "2.pt", weights_only=True)

    def assert_same(found, expected, tolerance):
        assert_close({**found["weights"]}, {**expected["weights"]}, rtol=tolerance, atol=tolerance)

    assert_same(alone["compiled"], alone["tied"], 1e-12)
    with pytest.raises(AssertionError):
        assert_same(alone["agps"], alone["tied"], 1e-3)
    for kind, found in together:
        assert_same(found, alone[kind], 1e-5 if kind == "Trainer" else 1e-12)
        for name in ("sizes", "tokens", "counts") if kind != "agps" else ():
            states = [one["counts"]["counter._extra_state"][0] for one in (found, alone[kind])]
            assert states[0][name].equal(states[1][name])
