"""fp16, bf16 and automatic mixed precision in fairseq's own trainer: training, skipped updates, NaN
and infinity."""

import functools
import math

import pytest
import torch
from fairseq import checkpoint_utils

from agg_fairseq.fairseq_plugin.output_layer import float32_copies
from agg_fairseq.functional import agg_gates, rare_tokens
from tests.small_trainings import (
    EVERY_CRITERION,
    F2_LM,
    LM,
    TIED,
    batches,
    build_trainer,
    count_targets,
    rare_rows,
)

AGG = "--criterion agg --agg-rare-fraction 0.4 --agg-window 3"
OBJECTIVES = {
    **EVERY_CRITERION,
    "agg": f"{AGG} --ul-alpha 0.5 --cosreg-gamma 2 --adv-epsilon 0.05",
    "freeze_rare": "--criterion freeze_rare --weight-decay 0.1",
    "f2_softmax": "--criterion f2_softmax",
    "embedding adam": f"{AGG} --optimizer embedding_adam --embedding-beta2 0.9",
}
FP16 = {
    "fp16": "--fp16",
    "fp16 not flat": "--fp16 --fp16-no-flatten-grads",
    "memory-efficient fp16": "--memory-efficient-fp16",
}
BF16 = {"bf16": "--bf16", "memory-efficient bf16": "--memory-efficient-bf16"}
MODES = FP16 | BF16 | {"amp": "--amp --amp-batch-retries 1"}


@pytest.fixture(autouse=True)
def no_cuda(monkeypatch):
    """The four things of CUDA that fairseq names, for the CPU; what they are used for stays
    fairseq's."""

    def autocast(enabled):
        return torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled)

    # the key of the flat copy: p.device.index
    monkeypatch.setattr(torch.cuda, "current_device", lambda: None)
    monkeypatch.setattr(torch.Tensor, "cuda", lambda tensor: tensor)  # of a norm after an overflow
    scaler = functools.partial(torch.amp.GradScaler, "cpu")
    monkeypatch.setattr(torch.cuda.amp, "GradScaler", scaler)
    monkeypatch.setattr(torch.cuda.amp, "autocast", autocast)


def small_trainer(data, *options):
    base = F2_LM if OBJECTIVES["f2_softmax"] in options else LM
    return build_trainer(data, TIED, *options, base=base)


def trained(trainer, updates):
    data = batches(trainer)[:3]
    return [float(trainer.train_step([data[number % 3]])["loss"]) for number in range(updates)]


@pytest.mark.grid(4)
@pytest.mark.parametrize(("name", "mode"), zip(OBJECTIVES, [*MODES] * 2, strict=False))
def test_training_is_close_to_that_in_float32(lm_data, name, mode):
    found = trained(small_trainer(lm_data, OBJECTIVES[name], MODES[mode]), 9)
    expected = trained(small_trainer(lm_data, OBJECTIVES[name]), 9)
    assert found[-1] < found[0] - 0.3 and found != expected, "else the mode had no effect"
    # whose greedy continuations part where two tokens are nearly as likely
    if name != "unlikelihood_sequence":
        assert found == pytest.approx(expected, rel=3e-3 if mode in FP16 else 3e-2)


def test_every_parameter_of_an_amp_update_has_a_gradient(lm_data):
    """Covers a model that has run without gradients first, whose casts autocast may remember."""
    trainer = small_trainer(lm_data, OBJECTIVES["unlikelihood_sequence"], MODES["amp"])
    trained(trainer, 2)  # the second is made on continuations
    assert all(p.grad is not None and p.grad.any() for p in trainer.model.parameters())


def attempts(trainer, mode, updates, spoil=math.inf, frequency=1):
    """Steps until so many updates have taken place: the micro-batches of each attempt, and whether
    it was an update.

    In modes with a scale of the loss, the gradient of the fifth attempt is not finite, by `spoil`.
    """
    data, layer = batches(trainer), trainer.model.decoder.layers[0]
    for number in range(60):
        before = trainer.get_num_updates()
        if before == updates:
            return
        handle = layer.register_forward_hook(lambda _, __, out: (out[0] * spoil, *out[1:]))
        if number != 4 or mode in BF16:
            handle.remove()
        samples = [data[(number * frequency + i) % len(data)] for i in range(frequency)]
        trainer.train_step(samples)
        handle.remove()
        yield samples, trainer.get_num_updates() > before
    raise AssertionError("every attempt is skipped")


CURRENT = "--agg-count-current-batch"


@pytest.mark.parametrize(
    ("mode", "frequency", "current", "spoil"),
    [
        ("fp16", 2, CURRENT, math.inf),
        ("fp16 not flat", 2, "", math.nan),
        ("memory-efficient fp16", 1, "", math.nan),
        ("amp", 1, CURRENT, math.inf),
    ],
)
def test_skipped_updates_are_not_counted(lm_data, mode, frequency, current, spoil):
    """The next attempt has the gates of the updates that did take place."""
    options = (AGG, MODES[mode], "--update-freq", frequency, current)
    trainer = small_trainer(lm_data, *options)
    dictionary = trainer.task.target_dictionary
    agg, done, attempted = trainer.criterion.gating, [], 0
    for samples, happened in attempts(trainer, mode, 7, spoil, frequency):
        attempted += 1
        window, gates = done[-3:], agg.gates(None)
        known = [*window, samples] if current and window else window
        if known:
            counts = count_targets(sum(known, []), dictionary)
            rare = rare_tokens(counts, len(known), rare_fraction=0.4, excluded=agg.excluded)
            torch.testing.assert_close(vars(gates), vars(agg_gates(counts, len(known), rare)))
        elif not current:
            assert gates is None
        assert agg.counter.appearances.equal(count_targets(sum(window, []), dictionary))
        done += [samples] * happened
    assert attempted > len(done) == 7
    assert agg.counter.current.equal(count_targets(done[-1], dictionary))
    assert all(tensor.isfinite().all() for tensor in trainer.model.parameters())


@pytest.mark.grid(2)
@pytest.mark.parametrize("mode", MODES)
def test_frozen_rows(lm_data, mode):
    trainer = small_trainer(lm_data, OBJECTIVES["freeze_rare"], MODES[mode])
    frozen, weight = rare_rows(trainer), trainer.model.decoder.output_projection.weight
    for _, happened in attempts(trainer, mode, 6):
        assert torch.equal(rare_rows(trainer), frozen) and frozen.any()
        copies = list(float32_copies(trainer.optimizer, weight))
        assert bool(copies) == hasattr(trainer.optimizer, "fp32_params")
        for copy in copies if happened else ():
            assert torch.equal(copy.to(weight.dtype), weight)
            assert copy[trainer.criterion.rare].equal(frozen.float())


@pytest.mark.grid(1)
@pytest.mark.parametrize(
    ("name", "mode"),
    [("agg", "memory-efficient fp16"), ("embedding adam", "memory-efficient bf16")],
)
def test_a_resume_goes_on_bit_for_bit(lm_data, tmp_path, name, mode):
    """Modes in which fairseq saves all that it trains, unlike `--fp16` and `--amp`."""
    options = (OBJECTIVES[name], MODES[mode], "--save-dir", tmp_path)
    whole = small_trainer(lm_data, *options)
    iterator = whole.get_train_iterator(1)
    trained(whole, 4)
    whole.cfg.checkpoint.no_save = False
    iterator.next_epoch_itr()
    checkpoint_utils.save_checkpoint(whole.cfg.checkpoint, whole, iterator, None)
    resumed = small_trainer(lm_data, *options)
    checkpoint_utils.load_checkpoint(resumed.cfg.checkpoint, resumed)
    assert resumed.get_num_updates() == 4
    assert trained(resumed, 6) == trained(whole, 6)
    assert all(map(torch.equal, resumed.model.parameters(), whole.model.parameters()))
    if (counter := whole.criterion.gating.counter) is not None:
        assert resumed.criterion.gating.counter.appearances.equal(counter.appearances)
