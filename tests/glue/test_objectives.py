"""AGPS, the freezing study, FACE and sequence-level unlikelihood, inside fairseq's own task and
trainer."""

import copy
import math

import pytest
import torch
from torch.testing import assert_close

from agg_fairseq.fairseq_plugin import decoding
from agg_fairseq.functional import cosine_regularizer, repeated_ngrams
from tests.small_trainings import (
    EVERY_CRITERION,
    MT,
    TIED,
    batches,
    gradients,
    logged,
    rare_rows,
    target_counts,
    trainer_for,
)


def test_agps_counts_the_target_side(mt_data):
    trainer, _ = trainer_for(mt_data, *EVERY_CRITERION["agps"], base=MT)
    objective, dictionary = trainer.criterion.objective, trainer.task.target_dictionary
    assert objective.scaling == {"mu1": 30, "mu2": 5, "variant": "eq15"}
    assert torch.equal(trainer.criterion.count_targets(), target_counts(mt_data, dictionary))
    source = dictionary.index("w0")  # of the source side alone, like 'happiness' in the paper
    gates = objective.gates(batches(trainer.cfg, trainer.task)[0]["target"])
    assert objective.rare_rank == 20 and objective.rare[source]
    assert gates.g1[source] == gates.g2[source] == 0
    assert not objective.rare[[dictionary.pad(), dictionary.unk()]].any()


def test_frozen_rows_are_released(lm_data):
    options = ("--criterion", "freeze_rare", "--freeze-until", 2, "--weight-decay", 0.1)
    trainer, _ = trainer_for(lm_data, *options)
    before = rare_rows(trainer)
    for number, batch in enumerate(batches(trainer.cfg, trainer.task)[:4]):
        trainer.train_step([batch])
        assert torch.equal(rare_rows(trainer), before) == (number < 2)


@pytest.mark.parametrize(
    "options",
    [
        ("--optimizer", "sgd", "--momentum", 0.9, "--weight-decay", 0.1),
        (TIED, "--update-freq", 2, "--clip-norm", 0.1, "--weight-decay", 0.1),
    ],
    ids=["momentum", "adam tied, update-freq and clipping"],
)
def test_frozen_rows_stay_bit_identical(lm_data, options):
    """The first batch is a dummy one: a worker without data must freeze as the others do."""
    trainer, _ = trainer_for(lm_data, "--criterion", "freeze_rare", *options)
    before = rare_rows(trainer)
    weight = trainer.model.decoder.output_projection.weight
    others = weight.detach()[~trainer.criterion.rare].clone()
    data = batches(trainer.cfg, trainer.task)
    trainer._dummy_batch = data[0]
    for group in ([{}], *(data[start : start + 2] for start in range(0, 8, 2))):
        trainer.train_step(group)
    assert torch.equal(rare_rows(trainer), before) and before.abs().sum() > 0
    assert not torch.equal(weight.detach()[~trainer.criterion.rare], others)
    moment = trainer.optimizer.optimizer.state[weight].get("exp_avg")
    assert moment is None or not moment[trainer.criterion.rare].any()


def test_rare_by_relative_frequency(mt_data):
    trainer, _ = trainer_for(mt_data, "--criterion", "freeze_rare", "--freeze-below", 0.03, base=MT)
    dictionary = trainer.task.target_dictionary
    counts, expected = target_counts(mt_data, dictionary), []
    for token, word in enumerate(dictionary.symbols):
        is_word = token >= 4 and not word.startswith("madeup")
        expected.append(is_word and bool(counts[token] < 0.03 * counts.sum()))
    assert trainer.criterion.rare.tolist() == expected
    assert 0 < sum(expected) < len(dictionary) - 4


def test_face_counts_its_own_predictions(lm_data):
    """Counts those of the updates before, without padding and dummy batches."""
    trainer, _ = trainer_for(lm_data, "--criterion", "face")
    data = batches(trainer.cfg, trainer.task)
    criterion, pad = trainer.criterion, trainer.task.target_dictionary.pad()
    with torch.no_grad():
        predicted = trainer.model(**data[0]["net_input"])[0].argmax(-1)
    trainer.train_step([data[0], {}])
    assert not criterion.objective.counter.appearances.any()
    trainer.train_step([data[1]])
    target, counter = data[0]["target"], criterion.objective.counter
    is_target = target != pad
    expected = torch.bincount(predicted[is_target], minlength=criterion.objective.vocabulary)
    assert torch.equal(counter.appearances, expected)
    weights = (1 - expected / expected.max())[target[is_target]]
    weights *= len(expected) / (1 - expected / expected.max()).sum()
    assert_close(criterion.objective.position_weight(target)[is_target], weights)


SEQUENCE = EVERY_CRITERION["unlikelihood_sequence"]


def test_sequence_updates_alternate(lm_data):
    trainer, _ = trainer_for(lm_data, *SEQUENCE, "--ul-sequence-rate", 0.25)
    kinds = []
    for update in range(8):
        trainer.criterion.start_update(update)
        kinds.append(trainer.criterion._continues)
    assert kinds == [False, False, False, True] * 2


def test_a_batch_without_a_prefix_is_trained_on_as_it_is(lm_data):
    """Its log has the keys and kinds of values of the others, as fairseq needs to add up the logs
    of workers."""
    trainer, _ = trainer_for(lm_data, *SEQUENCE, "--ul-alpha", 1, "--ul-sequence-rate", 1)
    batch, kinds = batches(trainer.cfg, trainer.task)[0], []
    short = copy.deepcopy(batch)
    short["target"], short["ntokens"] = batch["target"][:, :4], 4 * len(batch["target"])
    short["net_input"]["src_tokens"] = batch["net_input"]["src_tokens"][:, :4]
    for sample in (batch, short):
        _, log = gradients(trainer, sample)
        kinds.append({name: isinstance(value, torch.Tensor) for name, value in log.items()})
        assert (log["ul_sequence_loss_number"] > 0) == (log["nll_tokens"] == 0) == (sample is batch)
    assert kinds[0] == kinds[1] and log["nll_tokens"] == short["ntokens"]


def test_sequence_loss_equals_the_paper(lm_data):
    """−Σ log(1 − p(x_t)) over the tokens of the continuation that are in a repeated n-gram, in
    float64; and CosReg. Of each sequence, one prefix: the same however the update is split."""
    trainer, _ = trainer_for(
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
    assert values["ul_sequence_loss"] == pytest.approx(
        punished.item() / repeated.numel() / math.log(2), abs=1e-3
    )
