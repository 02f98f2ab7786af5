"""AGPS, the freezing study, FACE and sequence-level unlikelihood, inside fairseq's own task and
trainer."""

import copy

import pytest
import torch
from torch.testing import assert_close

from agg_fairseq.fairseq_plugin import decoding
from agg_fairseq.functional import cosine_regularizer, repeated_ngrams
from tests.small_trainings import (
    EVERY_CRITERION,
    MT,
    batches,
    build_trainer,
    gradients,
    logged,
    target_counts,
)


def test_agps_counts_the_target_side(mt_data):
    trainer, _ = build_trainer(mt_data, *EVERY_CRITERION["agps"], base=MT)
    gating, dictionary = trainer.criterion.gating, trainer.task.target_dictionary
    assert gating.scaling == {"mu1": 30, "mu2": 5, "variant": "eq15"}
    assert torch.equal(gating.counts, target_counts(mt_data, dictionary))
    # `w0` is of the source side alone, like 'happiness' in the paper
    rare = gating.gates(None).rare
    assert gating.rare_rank == 20 and rare[dictionary.index("w0")]
    assert not rare[: dictionary.nspecial].any()


def test_frozen_rows_stay_bit_identical_until_they_are_released(lm_data):
    """The first batch is a dummy one: a worker without data must freeze as the others do."""
    options = ("--optimizer", "sgd", "--momentum", 0.9, "--weight-decay", 0.1, "--update-freq", 2)
    options += ("--criterion", "freeze_rare", "--freeze-until", 4)
    trainer, _ = build_trainer(lm_data, *options)
    weight, is_frozen = trainer.model.decoder.output_projection.weight, trainer.criterion.rare
    before, data = weight.detach().clone(), batches(trainer.cfg, trainer.task)
    trainer._dummy_batch = data[0]
    for group in ([{}], data[:2], data[2:4], data[4:6]):
        trainer.train_step(group)
    assert trainer.criterion.open_update == 3, "of which the embedding's statistics are due"
    is_same = (weight == before).all(1)
    assert is_same.equal(is_frozen) and before[is_frozen].any()
    trainer.train_step(data[6:8])
    assert not (weight == before).all(1).any()


def test_rare_by_relative_frequency(mt_data):
    trainer, _ = build_trainer(
        mt_data, "--criterion", "freeze_rare", "--freeze-below", 0.03, base=MT
    )
    dictionary = trainer.task.target_dictionary
    counts = target_counts(mt_data, dictionary)
    expected = counts < 0.03 * counts.sum()
    for token, word in enumerate(dictionary.symbols):
        expected[token] &= token >= 4 and not word.startswith("madeup")
    assert trainer.criterion.rare.equal(expected)
    assert 0 < expected.sum() < len(dictionary) - 4


SEQUENCE = EVERY_CRITERION["unlikelihood_sequence"]


def test_sequence_updates_alternate(lm_data):
    shortest = ("--ul-ngram", 1, "--ul-prefix-length", 1, "--ul-completion-length", 1)
    trainer, _ = build_trainer(lm_data, *SEQUENCE, *shortest, "--ul-sequence-rate", 0.25)
    kinds = []
    for update in range(8):
        trainer.criterion.start_update(update)
        kinds.append(trainer.criterion._continues)
    assert kinds == [False, False, False, True] * 2


def test_a_batch_without_a_prefix_is_trained_on_as_it_is(lm_data):
    """Its log has the keys and kinds of values of the others, as fairseq needs to add up the logs
    of workers."""
    trainer, _ = build_trainer(lm_data, *SEQUENCE, "--ul-alpha", 1, "--ul-sequence-rate", 1)
    batch = batches(trainer.cfg, trainer.task)[0]
    short = copy.deepcopy(batch)
    short["target"], short["ntokens"] = batch["target"][:, :4], 4 * len(batch["target"])
    short["net_input"]["src_tokens"] = batch["net_input"]["src_tokens"][:, :4]
    _, log = gradients(trainer, batch)
    _, log_of_short = gradients(trainer, short)
    assert log["ul_sequence_loss_number"] > 0 == log["nll_tokens"]
    assert log_of_short["ul_sequence_loss_number"] == 0 < log_of_short["nll_tokens"]
    assert log_of_short["nll_tokens"] == short["ntokens"] and log.keys() == log_of_short.keys()
    for name, value in log.items():
        assert torch.is_tensor(value) == torch.is_tensor(log_of_short[name]), name


def test_sequence_loss_equals_the_paper(lm_data):
    """−Σ log(1 − p(x_t)) over the tokens of the continuation that are in a repeated n-gram, in
    float64; and CosReg. Of each sequence, one prefix: the same however the update is split."""
    trainer, _ = build_trainer(
        lm_data, *SEQUENCE, "--ul-sequence-rate", 1, "--ul-alpha", 0.5, "--cosreg-gamma", 3
    )
    batch, pad = batches(trainer.cfg, trainer.task)[0], trainer.task.target_dictionary.pad()
    model = trainer.model.double()
    found, log = gradients(trainer, batch)
    tokens = batch["net_input"]["src_tokens"]
    prefixes = tokens[:, :5]  # 16 // (5 + 9) = 1 of each
    assert (prefixes != pad).all()
    continuation = decoding.continuation(model, prefixes, 9, forbidden=(pad,))
    repeated = repeated_ngrams(continuation, 2)
    assert repeated.any() and not repeated.all()
    p = model(torch.cat([prefixes, continuation], 1)[:, :-1])[0][:, 4:].softmax(-1)
    punished = -(1 - p.gather(2, continuation[:, :, None]).squeeze(2)[repeated]).log().sum()
    penalty = cosine_regularizer(model.decoder.output_projection.weight, padding_row=pad)
    expected = punished + 3 * continuation.numel() * penalty
    assert_close(log["loss"], expected.detach())
    assert_close(found, torch.autograd.grad(expected, list(model.parameters())))
    assert log["sample_size"] == continuation.numel() and log["ul_loss_number"] == 0
    values = logged(trainer.criterion, [log])
    assert "nll_loss" not in values
    assert values["repeated"] == pytest.approx(repeated.double().mean().item(), abs=1e-4)
