"""What every criterion has in common, and what `agg` learns from fairseq, inside fairseq's own task
and trainer."""

import itertools
import math
import re

import pytest
import torch
from fairseq import criterions as fairseq_criterions
from fairseq.data.iterators import GroupedIterator
from fairseq.logging import metrics
from torch.nn.functional import cross_entropy

from agg_fairseq.functional import cosine_regularizer, naive_gated_cross_entropy, previous_tokens
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
    gradients,
    logged,
    target_counts,
)

WITH_TERMS = ("--ul-alpha", 0.5, "--adv-epsilon", 0.4, "--cosreg-gamma", 3)
BASES = dict(zip(EVERY_CRITERION, itertools.cycle([(LM, TIED), (MT,), (LM,)]), strict=False))
BASES["unlikelihood_sequence"] = (LM, TIED)


@pytest.mark.grid(4)
@pytest.mark.parametrize("name", EVERY_CRITERION)
def test_every_criterion_takes_every_term(lm_data, mt_data, name):
    """Every gradient is that of the naive implementation with the gates, position weights and terms
    of this criterion, also of a tied embedding; nll_loss is the model's."""
    base, *tied = BASES[name]
    data, smoothing = lm_data if base is LM else mt_data, 0.1 * (name in ("mle", "agg", "agps"))
    options = (*EVERY_CRITERION[name], *tied, "--label-smoothing", smoothing)
    trainer, _ = build_trainer(data, *options, *WITH_TERMS, base=base)
    first, *others = batches(trainer.cfg, trainer.task)
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
        torch.testing.assert_close(one, expected, rtol=1e-4, atol=1e-4)

    log = criterion.eval()(model, batch)[2]
    torch.testing.assert_close(log["nll_loss"], nll)
    assert log["adv_loss_number"] == 0, "adversarial training is no measure"


def test_micro_batches_share_a_slot_and_others_are_not_counted(lm_data):
    """Neither dummy batches nor validation are counted. Special tokens are never rare."""
    options = ("--criterion", "agg", "--agg-alpha", 0.999, "--update-freq", 3)
    trainer, _ = build_trainer(lm_data, *options)
    gating, dictionary = trainer.criterion.gating, trainer.task.target_dictionary
    data = batches(trainer.cfg, trainer.task)

    def counts(group):
        tokens = torch.cat([batch["target"].flatten() for batch in group])
        return torch.bincount(tokens[tokens != dictionary.pad()], minlength=len(dictionary))

    # an empty batch: fairseq repeats its first as a dummy
    trainer.train_step([data[0], data[1], {}])
    assert "rare_tokens" not in trainer.valid_step(data[5])
    assert torch.equal(gating.counter.current, counts(data[:2]))
    assert gating.gates(None) is None
    trainer.train_step(data[2:5])
    assert torch.equal(gating.counter.appearances, counts(data[:2]))
    assert torch.equal(gating.counter.current, counts(data[2:5]))
    rare = gating.gates(None).rare
    assert rare.any() and not rare[: dictionary.nspecial].any()


def test_a_static_group_is_fixed_after_its_epoch(lm_data):
    options = ("--criterion", "agg", "--agg-window", 2, "--agg-static-after-epoch", 2)
    trainer, _ = build_trainer(lm_data, *options)
    criterion, data = trainer.criterion, batches(trainer.cfg, trainer.task)[:1]
    for epoch in (2, 2, 2, 3):
        criterion.gating.start_epoch(epoch, 9)
        trainer.train_step(data)
        assert (criterion.gating.static_rare is not None) == (epoch == 3)


@pytest.mark.parametrize(
    ("frequency", "sentences", "more"),
    [(1, 4, ()), (3, 5, ()), (2, 4, ("--skip-remainder-batch",))],
)
def test_a_window_is_one_epoch(lm_data, frequency, sentences, more):
    options = ("--update-freq", frequency, "--batch-size", sentences, *more)
    trainer, iterator = build_trainer(lm_data, "--criterion", "agg", *options)
    skips = trainer.cfg.optimization.skip_remainder_batch
    epoch = GroupedIterator(iterator.next_epoch_itr(), frequency, skips)
    assert trainer.criterion.gating.counter.window == len(list(epoch))


@pytest.mark.parametrize(
    ("alpha", "level", "epochs"), [(0.3, "INFO", 10), (0.9, "WARNING", 9)], ids=["usual", "odd"]
)
def test_what_is_told_before_the_training(lm_data, caplog, alpha, level, epochs):
    """What is rare in an epoch, of one of two shards; that more than half of the tokens is much;
    and that the window is long."""
    caplog.set_level("INFO")
    updates = len(batches(*build(lm_data)[:2]))
    options = ("--criterion", "agg", "--agg-alpha", alpha, "--max-update", epochs * updates)
    trainer, _ = build_trainer(f"{lm_data}:{lm_data}", *options)
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
    for name, *options in (("agg",), ("freeze_rare", "--freeze-parts", "bc")):
        _, task, model, criterion = build(lm_data, "--criterion", name, *options)
        if options:
            criterion.set_rare(criterion.rare | True)
        with pytest.raises((RuntimeError, TypeError)):  # of the counts; of the model
            task.train_step(sample, model.to("meta"), criterion, None, 0)
        tensors = [*criterion.gating.buffers()]
        tensors += [criterion.gating.counter.current] if name == "agg" else []
        assert tensors and {tensor.device.type for tensor in tensors} == {"meta"}


def test_bad_options_are_one_line_and_status_2(lm_data, capsys):
    for *options, words in (
        ("agg", "--agg-rare-fraction", 0.2, "--agg-alpha", 0.1, "alpha 0.1 and rare_fraction 0.2"),
        ("mle", "--ddp-backend", "slowmo", "expected pytorch_ddp or legacy_ddp"),
        ("agg", "--use-bmuf", "drift apart; expected to train without it"),
        ("freeze_rare", "--freeze-below", 1, "--freeze-below between 0 and 1"),
        ("unlikelihood_sequence", "--ul-ngram", 0, "expected at least 1 token in --ul-ngram"),
        ("unlikelihood_sequence", "--ul-completion-length", 0, "expected at least 1 token in"),
        ("unlikelihood_sequence", "expected at most --tokens-per-sample 16, got 50"),
    ):
        assert words in one_line(capsys, build, lm_data, "--criterion", *options)


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
    criterion = ("--criterion", "power", "--gate-power", 0.3, "--ul-alpha", 0.1)
    printed = called("train", lm_data, "--user-dir", folder, *LM, *criterion, *options.split())
    assert '"num_updates": "2"' in printed and '"ul_loss"' in printed
    assert '"rare_tokens"' in printed and "epochs of" in printed
