"""GatedHead as a callback of Trainer, with accelerate, and with several workers."""

import pickle
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
import transformers
from accelerate import Accelerator
from accelerate.state import GradientState
from torch.testing import assert_close

from agg_fairseq.errors import UserError
from agg_fairseq.integrations import label_counts
from agg_fairseq.integrations import transformers as integration
from tests.integrations import sharding
from tests.processes import run_processes
from tests.small_transformers import VOCABULARY, batch, dataset, gated_head, gpt2, trainer


@pytest.fixture(autouse=True)
def _accelerate_forgets():
    """A training that was broken off leaves a micro-batch that does not end an update."""
    yield
    GradientState._reset_state()


def test_trainer_counts_one_slot_per_update(tmp_path):
    """22 examples in batches of 2, 3 of them per update, the last update of an epoch with 2: 4
    updates per epoch. Validation and a skipped update are not counted."""
    model = gpt2()
    gated = gated_head(model)
    training = trainer(model, tmp_path, gated, num_train_epochs=1)
    training.train()
    counter = gated.gating.counter
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
    monkeypatch.setattr(integration, "MOST_EPOCH_SLOTS", 5)
    model = gpt2()
    gated = gated_head(model, window=window)
    arguments = {"gradient_accumulation_steps": 1, "max_steps": 13}
    trainer(model, tmp_path, gated, dataset(24), **arguments).train()
    counter = gated.gating.counter
    assert counter.window == 12 and (10 if window is None else 12) <= counter.updates <= 12
    assert counter.appearances.sum() == counter.updates * 2 * 11
    assert (len(counter.get_extra_state()[0]["bytes"]) <= 5) == (window is None)


def smoothed(outputs, labels, num_items_in_batch=None):
    """What Trainer computes with `label_smoothing_factor=0.1`."""
    logits, target = outputs.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
    summed = F.cross_entropy(logits, target, label_smoothing=0.1, reduction="sum")
    return summed / num_items_in_batch


def test_losses_of_trainer_and_of_the_user_are_gated(tmp_path):
    """The model does not get their labels. Gates of 1 leave the training as it is."""
    trained = {}
    for kind in ("plain", "gates of 1", "Trainer's", "user's"):
        model, gated = gpt2(), None
        if kind != "plain":
            gated = gated_head(model, window=3)
        if kind == "gates of 1":
            gated.gating.gates = lambda target: None
        training = trainer(model, tmp_path, gated, label_smoothing_factor=0.1 * (kind != "user's"))
        if kind == "user's":
            training.compute_loss_func = smoothed
        training.train()
        trained[kind] = model.lm_head.weight.detach()
        assert gated is None or gated.gating.counter.updates == 3
    assert trained["gates of 1"].equal(trained["plain"])
    assert_close(trained["user's"], trained["Trainer's"], rtol=1e-4, atol=1e-5)
    assert (trained["user's"] - trained["plain"]).abs().max() > 0.01


@pytest.mark.parametrize("kind", ["distillation", "no collate_fn"])
def test_batches_of_trainer_are_its_own(tmp_path, kind):
    """For a teacher, by name, and for a generation; also where the labels are taken out of them, and
    where a loader has no `collate_fn`."""
    model, teacher = gpt2(), gpt2().eval()
    gated = gated_head(model, window=3)

    class Training(transformers.Trainer):
        def get_train_dataloader(self):
            loader = super().get_train_dataloader()
            return loader if kind == "distillation" else [*loader]

        def compute_loss(self, model, inputs, **_):
            assert set(inputs) == {"input_ids", "labels"}
            if kind == "distillation":
                assert inputs.input_ids is inputs["input_ids"]
                labels = inputs.pop("labels")
                with torch.no_grad():
                    expected = teacher(**inputs).logits.softmax(-1)
                    model.generate(**inputs, max_new_tokens=1)
            logits = model(**inputs).logits
            if kind != "distillation":
                return F.cross_entropy(
                    logits[:, :-1].flatten(0, 1), inputs["labels"][:, 1:].flatten()
                )
            counts = gated.gating.counter.current
            assert counts.sum() > 0 and counts[labels[:, 1:]].all()
            return -(expected * logits.log_softmax(-1)).sum(-1).mean()

    def collate(examples):
        batch = {name: torch.stack([one[name] for one in examples]) for name in examples[0]}
        return transformers.BatchEncoding(batch)

    training = trainer(model, tmp_path, gated, max_steps=2)
    training.__class__, training.data_collator = Training, collate
    training.train()
    assert gated.gating.counter.updates == 2
    batch = integration._remembering_collate(collate, dataset())
    sent = pickle.loads(pickle.dumps(batch))  # from a worker of the loader
    assert type(sent) is type(batch) and sent.pop("labels").equal(sent.input_ids)


@pytest.mark.slow
def test_trainer_resumes_bit_for_bit(tmp_path, caplog):
    """With gradient accumulation and dropout, from the middle of an epoch, in any folder."""

    def trained(**more):
        model = gpt2(resid_pdrop=0.1, embd_pdrop=0.1, attn_pdrop=0.1)
        gated = gated_head(model)
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
    for name in ("slots", "bytes", "current"):
        assert found_counts[name].equal(counts[name])
    assert "found no counts" not in caplog.text
    schedule = torch.load(folder / "scheduler.pt", weights_only=True)
    assert schedule.pop("_gated_head")["counter._extra_state"][0]["bytes"].numel() == 4
    torch.save(schedule, folder / "scheduler.pt")
    _, found_counts = trained(resume_from_checkpoint=str(folder))
    assert found_counts["bytes"].numel() == 3
    assert "found no counts of its rule" in caplog.text


@pytest.mark.parametrize("kind", ["another model", "removed", "not a callback"])
def test_trainer_refuses_another_model(tmp_path, kind):
    model = gpt2()
    gated = gated_head(model)
    trained = gpt2() if kind == "another model" else model
    words = "of the model that GatedHead was made with"
    if kind == "removed":
        gated.remove()
    elif kind == "not a callback":
        gated, words = None, "the optimizer has stepped, but the update has not ended"
    with pytest.raises(UserError, match=words):
        trainer(trained, tmp_path, gated).train()


def test_accumulation_of_accelerate():
    """`commit_update` may follow each micro-batch, as the step of accelerate's optimizer does."""
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = gpt2()
    gated = gated_head(model)
    wrapped, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for seed in range(4):
        with accelerator.accumulate(wrapped):
            accelerator.backward(wrapped(**batch(seed=seed)).loss)
            optimizer.step()
            optimizer.zero_grad()
            gated.commit_update()
    counter = gated.gating.counter
    assert (counter.updates, int(counter.appearances.sum())) == (2, 4 * 3 * 11)


@pytest.mark.slow
def test_several_workers_and_compiled_models_train_as_one(tmp_path):
    """DDP, FSDP and FSDP2 in float64, Trainer with DDP and with `fsdp`, and a resume of each;
    torch.compile."""
    alone = sharding.train_alone(tmp_path)
    run_processes(sharding.train_together, 2, tmp_path, tmp_path)

    def assert_same(found, expected, tolerance):
        assert_close({**found["weights"]}, {**expected["weights"]}, rtol=tolerance, atol=tolerance)

    assert_same(alone["compiled"], alone["tied"], 1e-12)
    with pytest.raises(AssertionError):
        assert_same(alone["agps"], alone["tied"], 1e-3)
    for kind, found in torch.load(tmp_path / "together.pt", weights_only=True):
        assert_same(found, alone[kind], 1e-5 if kind == "Trainer" else 1e-12)
        for name in ("slots", "bytes") if kind != "agps" else ():
            states = [one["counts"]["counter._extra_state"][0] for one in (found, alone[kind])]
            assert states[0][name].equal(states[1][name])
