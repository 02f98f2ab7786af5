"""Criterions inside fairseq's own task and trainer: what all of them have in common, and what each
learns from fairseq."""

import itertools
import math
import re

import pytest
import torch
from fairseq import criterions as fairseq_criterions
from fairseq.data.iterators import GroupedIterator
from fairseq.logging import metrics
from torch.nn.functional import cross_entropy
from torch.testing import assert_close

from agg_fairseq.data.binarized import excluded_tokens
from agg_fairseq.fairseq_plugin import decoding
from agg_fairseq.functional import (
    cosine_regularizer,
    naive_gated_cross_entropy,
    previous_tokens,
    repeated_ngrams,
)
from tests.commands import one_line
from tests.conftest import ROOT, called
from tests.small_trainings import (
    EVERY_CRITERION,
    LM,
    MT,
    TIED,
    batches,
    build,
    build_trainer,
    count_targets,
    gradients,
    logged,
    target_counts,
)

WITH_TERMS = "--ul-alpha 0.5 --adv-epsilon 0.4 --cosreg-gamma 3"
BASES = dict(zip(EVERY_CRITERION, itertools.cycle([(LM, TIED), (MT, ""), (LM, "")]), strict=False))
BASES["unlikelihood_sequence"] = (LM, TIED)


@pytest.mark.grid(4)
@pytest.mark.parametrize("name", EVERY_CRITERION)
def test_every_criterion_takes_every_term(data_for, name):
    """Every gradient is that of the naive implementation with the gates, position weights and terms
    of this criterion, also of a tied embedding; nll_loss is the model's."""
    base, tied = BASES[name]
    smoothing = 0.1 * (name in ("mle", "agg", "agps"))
    options = f"{EVERY_CRITERION[name]} {WITH_TERMS} --label-smoothing {smoothing}"
    trainer = build_trainer(data_for(base), options, tied, base=base)
    first, *others = batches(trainer)
    model, criterion, pad = trainer.model, trainer.criterion, trainer.task.target_dictionary.pad()
    batch = next(batch for batch in others if base is LM or (batch["target"] == pad).any())
    trainer.train_step([first])
    update = 2 if name == "unlikelihood_sequence" else 1  # in this one it trains on the batch
    grads, log = gradients(trainer, batch, update)

    features = model(**batch["net_input"], features_only=True)[0]
    weight, target = model.decoder.output_projection.weight, batch["target"]
    nll = cross_entropy(
        (features @ weight.T).flatten(0, 1), target.flatten(), ignore_index=pad, reduction="sum"
    )
    found = logged(criterion, [log])
    assert found["nll_loss"] == pytest.approx(nll.item() / batch["ntokens"] / math.log(2), abs=2e-3)
    assert found["adv_loss"] > found["nll_loss"] + 0.01 and found["ul_loss"] and found["cosreg"]
    if name != "face" and not smoothing:  # weights and shares that adv_loss does not have
        bits = found["adv_loss"] + 0.5 * found["ul_loss"]
        assert found["loss"] == pytest.approx(bits + 3 * found["cosreg"] / math.log(2), abs=4e-3)

    gating, parameters = criterion.gating, list(model.parameters())
    weights = gating(target, is_dummy=True) if name == "face" else None
    naive = naive_gated_cross_entropy(
        features, weight, target, gates=gating.gates(target), ul_alpha=0.5, adv_epsilon=0.4,
        position_weight=weights, ignore_index=pad,
        candidates=previous_tokens(target, pad),
        label_smoothing=smoothing * len(weight) / (len(weight) - 1),  # of fairseq
    )  # fmt: skip
    penalty = 3.0 * cosine_regularizer(weight, padding_row=pad)
    right = torch.autograd.grad(naive + batch["ntokens"] * penalty, parameters)
    for parameter, one, expected in zip(parameters, grads, right, strict=True):
        # which takes the gradient of the frozen rows away
        if parameter is weight and name == "freeze_rare":
            expected = expected.index_fill(0, criterion.rare.nonzero().flatten(), 0)
        assert_close(one, expected, rtol=1e-4, atol=1e-4)

    log = criterion.eval()(model, batch)[2]
    assert_close(log["nll_loss"], nll)
    assert log["adv_loss_number"] == 0, "adversarial training is no measure"


def test_micro_batches_share_a_slot_and_others_are_not_counted(lm_data):
    """Neither dummy batches nor validation are counted. Special tokens are never rare."""
    options = "--criterion agg --agg-alpha 0.999 --update-freq 3"
    trainer = build_trainer(lm_data, options)
    gating, dictionary = trainer.criterion.gating, trainer.task.target_dictionary
    data = batches(trainer)

    # an empty batch: fairseq repeats its first as a dummy
    trainer.train_step([data[0], data[1], {}])
    assert "rare_tokens" not in trainer.valid_step(data[5])
    assert gating.counter.current.equal(count_targets(data[:2], dictionary))
    assert gating.gates(None) is None
    trainer.train_step(data[2:5])
    assert gating.counter.appearances.equal(count_targets(data[:2], dictionary))
    assert gating.counter.current.equal(count_targets(data[2:5], dictionary))
    rare = gating.gates(None).rare
    assert rare.any() and not rare[: dictionary.nspecial].any()


@pytest.mark.parametrize(
    ("frequency", "sentences", "more"),
    [
        (1, 4, "--agg-static-after-epoch 2"),
        (3, 5, ""),
        (2, 4, "--skip-remainder-batch"),
    ],
)
def test_a_window_is_one_epoch(lm_data, frequency, sentences, more):
    options = f"--criterion agg --update-freq {frequency} --batch-size {sentences} {more}"
    trainer = build_trainer(lm_data, options)
    iterator = trainer.get_train_iterator(1).next_epoch_itr()
    epoch = GroupedIterator(iterator, frequency, trainer.cfg.optimization.skip_remainder_batch)
    gating = trainer.criterion.gating
    assert gating.counter.window == len(list(epoch))
    assert gating.static_after_epoch == 2 * ("--agg-static-after-epoch" in more)


@pytest.mark.parametrize(
    ("alpha", "level", "epochs"), [(0.3, "INFO", 10), (0.9, "WARNING", 9)], ids=["usual", "odd"]
)
def test_what_is_told_before_the_training(lm_data, caplog, alpha, level, epochs):
    """What is rare in an epoch, of one of two shards; that more than half of the tokens is much;
    and that the window is long."""
    caplog.set_level("INFO")
    updates = len(batches(build(lm_data)))
    options = f"--criterion agg --agg-alpha {alpha} --max-update {epochs * updates}"
    trainer = build_trainer(f"{lm_data}:{lm_data}", options)
    [record] = [one for one in caplog.records if "of the targets are rare" in one.message]
    counts = target_counts(lm_data, trainer.task.target_dictionary)
    rare = (counts / updates < alpha) & ~trainer.criterion.gating.excluded & (counts > 0)
    token_share, target_share = rare.sum() / (counts > 0).sum(), counts[rare].sum() / counts.sum()
    assert f"alpha {alpha} and epochs of {updates} updates, {token_share:.1%}" in record.message
    assert f" and {target_share:.1%} of the targets" in record.message and record.levelname == level
    assert ("more than a tenth of the training" in caplog.text) == (epochs < 10)


def test_the_criterion_follows_the_model_to_its_device(lm_data):
    """The distributed trainer moves a criterion only if it has parameters; `meta` stands for a GPU
    here, on which counting ends."""
    sample = {"net_input": {}, "target": torch.ones(1, 2).long().to("meta"), "ntokens": 2}
    for name, *options in (("agg",), ("freeze_rare", "--freeze-parts bc")):
        _, task, model, criterion = build(lm_data, "--criterion", name, *options)
        if options:
            criterion.set_rare(criterion.rare | True)
        with pytest.raises((RuntimeError, TypeError)):  # of the counts; of the model
            task.train_step(sample, model.to("meta"), criterion, None, 0)
        tensors = [*criterion.gating.buffers()]
        tensors += [criterion.gating.counter.current] if name == "agg" else []
        assert tensors and {tensor.device.type for tensor in tensors} == {"meta"}


def test_bad_options_are_one_line_and_status_2(lm_data):
    for *options, words in (
        ("agg", "--agg-rare-fraction 0.2 --agg-alpha 0.1", "alpha 0.1 and rare_fraction 0.2"),
        ("mle", "--ddp-backend slowmo", "expected pytorch_ddp or legacy_ddp"),
        ("agg", "--use-bmuf", "drift apart; expected to train without it"),
        ("freeze_rare", "--freeze-below 1", "--freeze-below between 0 and 1"),
        ("unlikelihood_sequence", "--ul-ngram 0", "expected at least 1 token in --ul-ngram"),
        ("unlikelihood_sequence", "--ul-completion-length 0", "expected at least 1 token in"),
        ("unlikelihood_sequence", "expected at most --tokens-per-sample 16, got 50"),
    ):
        assert words in one_line(build, lm_data, "--criterion", *options)


def test_columns_of_a_former_criterion_are_forgotten():
    """Covers --reset-optimizer with another criterion: its meters come from the checkpoint, and
    stay empty."""
    log = {"loss": 3.0, "nll_loss": 2.0, "nll_tokens": 4, "ntokens": 4, "nsentences": 1}
    log["sample_size"] = 4
    criterions = fairseq_criterions.CRITERION_REGISTRY
    with metrics.aggregate("restored", new_root=True) as aggregator:
        criterions["agg"].reduce_metrics([log | {"rare_tokens": 9.0, "rare_tokens_number": 1}])
        metrics.log_scalar("of_another_criterion", 1.0)
        assert {"rare_tokens", "of_another_criterion"} <= aggregator.keys()
        metrics.reset_meters("restored")
        criterions["mle"].reduce_metrics([log])
        assert aggregator.get_smoothed_values() == {"loss": 1.082, "nll_loss": 0.721, "ppl": 1.65}
        # of a batch without targets: no division by 0
        criterions["mle"].reduce_metrics([dict.fromkeys(log, 0)])


def test_a_method_of_ones_own_is_one_short_file(lm_data, tmp_path):
    """The example of docs/objectives.md, in a folder for --user-dir."""
    page, folder = (ROOT / "docs" / "objectives.md").read_text(), tmp_path / "own_method"
    folder.mkdir()
    code = re.search(r"```python\n(.*?)```", page, re.DOTALL)[1]
    (folder / "__init__.py").write_text(code)
    options = "--optimizer adam --cpu --max-update 2 --no-save --log-format json --log-interval 1"
    criterion = "--criterion power --gate-power 0.3 --ul-alpha 0.1"
    printed = called("train", lm_data, "--user-dir", folder, *LM, criterion, options)
    assert '"num_updates": "2"' in printed and '"ul_loss"' in printed
    assert '"rare_tokens"' in printed and "epochs of" in printed


def test_what_is_rare_is_of_the_target_side(mt_data):
    """`w0` is of the source side alone, like 'happiness' in the paper."""
    agps = build_trainer(mt_data, EVERY_CRITERION["agps"], base=MT).criterion.gating
    below = "--criterion freeze_rare --freeze-below 0.03"
    trainer = build_trainer(mt_data, below, base=MT)
    dictionary, freeze_rare = trainer.task.target_dictionary, trainer.criterion
    counts, excluded = target_counts(mt_data, dictionary), excluded_tokens(dictionary)
    assert agps.scaling == {"mu1": 30, "mu2": 5, "variant": "eq15"} and agps.rare_rank == 20
    assert agps.counts.equal(counts)
    rare = agps.gates(None).rare
    assert rare[dictionary.index("w0")] and not rare[: dictionary.nspecial].any()
    assert freeze_rare.rare.equal((counts < 0.03 * counts.sum()) & ~excluded)
    assert 0 < freeze_rare.rare.sum() < (~excluded).sum()


def test_frozen_rows_stay_bit_identical_until_they_are_released(lm_data):
    """The first batch is a dummy one: a worker without data must freeze as the others do."""
    sgd = "--optimizer sgd --momentum 0.9 --weight-decay 0.1 --update-freq 2"
    trainer = build_trainer(lm_data, sgd, "--criterion freeze_rare --freeze-until 4")
    weight, is_frozen = trainer.model.decoder.output_projection.weight, trainer.criterion.rare
    before, data = weight.detach().clone(), batches(trainer)
    trainer._dummy_batch = data[0]
    for group in ([{}], data[:2], data[2:4], data[4:6]):
        trainer.train_step(group)
    assert trainer.criterion.open_update == 3, "of which the embedding's statistics are due"
    is_same = (weight == before).all(1)
    assert is_same.equal(is_frozen) and before[is_frozen].any()
    trainer.train_step(data[6:8])
    assert not (weight == before).all(1).any()


SEQUENCE = EVERY_CRITERION["unlikelihood_sequence"]


def test_sequence_updates_alternate(lm_data):
    shortest = "--ul-ngram 1 --ul-prefix-length 1 --ul-completion-length 1"
    criterion = build(lm_data, SEQUENCE, shortest, "--ul-sequence-rate 0.25").criterion
    kinds = []
    for update in range(8):
        criterion.start_update(update)
        kinds.append(criterion._continues)
    assert kinds == [False, False, False, True] * 2


def test_a_batch_without_a_prefix_is_trained_on_as_it_is(lm_data):
    """Its log has the keys and kinds of values of the others, as fairseq needs to add up the logs
    of workers."""
    trainer = build_trainer(lm_data, SEQUENCE, "--ul-alpha 1 --ul-sequence-rate 1")
    batch = batches(trainer)[0]
    tokens, target = batch["net_input"]["src_tokens"][:, :4], batch["target"][:, :4]
    short = {"target": target, "ntokens": target.numel()}
    short = batch | short | {"net_input": batch["net_input"] | {"src_tokens": tokens}}
    (_, log), (_, log_of_short) = gradients(trainer, batch), gradients(trainer, short)
    assert log["ul_sequence_loss_number"] > 0 == log["nll_tokens"]
    assert log_of_short["ul_sequence_loss_number"] == 0 < log_of_short["nll_tokens"]
    assert log_of_short["nll_tokens"] == short["ntokens"] and log.keys() == log_of_short.keys()
    for name, value in log.items():
        assert torch.is_tensor(value) == torch.is_tensor(log_of_short[name]), name


def test_sequence_loss_equals_the_paper(lm_data):
    """−Σ log(1 − p(x_t)) over the tokens of the continuation that are in a repeated n-gram, in
    float64; and CosReg. Of each sequence, one prefix: the same however the update is split."""
    trainer = build_trainer(
        lm_data, SEQUENCE, "--ul-sequence-rate 1 --ul-alpha 0.5 --cosreg-gamma 3"
    )
    batch, pad = batches(trainer)[0], trainer.task.target_dictionary.pad()
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
