"""fairseq's families of models and its tasks: the same loss as with fairseq's criterion, or one
line."""

import math

import numpy as np
import pytest
import torch
from fairseq import tasks
from fairseq.trainer import Trainer
from torch import nn
from torch.nn import functional
from torch.testing import assert_close

from tests.commands import one_line
from tests.conftest import preprocessed, zipf_text
from tests.small_trainings import (
    F2_LM,
    F2_MT,
    FAMILIES,
    LM,
    SMALL_LM,
    SMALL_MT,
    TIED,
    batches,
    build,
    build_trainer,
    configuration,
    gradients,
    logged,
)

CASES = {
    **FAMILIES,
    "transformer_lm_f2": F2_LM,
    "transformer_f2, tied": (*F2_MT, TIED, "--sentence-avg"),
}


@pytest.mark.grid(6)
@pytest.mark.parametrize("family", CASES)
def test_loss_gradients_and_log_are_those_of_fairseq(data_for, family):
    """Gradients of every parameter, without gates, also where weight normalization makes W of
    several."""
    base, options, name = CASES[family], "", "cross_entropy"
    data, criterion = data_for(base), "f2_softmax" if "_f2" in family else "mle"
    if list(CASES).index(family) % 2:
        options, name = "--label-smoothing 0.1", "label_smoothed_cross_entropy"
    training = build(data, "--criterion", criterion, options, base=base)
    _, task, model, ours = training
    theirs = configuration(data, "--criterion", name, options, base=base).criterion
    theirs = task.build_criterion(theirs)
    for module in model.modules():  # some options of dropout have no 0 in all of these families
        if isinstance(getattr(module, "p", None), float):
            module.p = 0.0
    sample, results = batches(training)[0], []
    for objective in (ours, theirs):
        model.zero_grad()
        loss, size, log = objective(model, sample)
        loss.backward()
        gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
        results.append(((loss, size), gradients, logged(objective, [log])))
    (found, gradients, log), (expected, expected_gradients, expected_log) = results
    assert_close(found, expected)
    assert_close(gradients, expected_gradients, rtol=1e-4, atol=1e-5)
    expected_log.setdefault("nll_loss", expected_log["loss"])
    for name in ("loss", "ppl", "nll_loss"):
        assert log[name] == pytest.approx(expected_log[name], rel=1e-4)
    assert not {"ul_loss", "adv_loss", "cosreg"} & log.keys(), "terms without a weight"


MASKED = (
    *"--task masked_lm --arch roberta_base --tokens-per-sample 16 --max-tokens 64".split(),
    *SMALL_MT[len(SMALL_LM) :],
)


@pytest.mark.parametrize(
    ("base", "criterion", "words"),
    [
        (
            (*LM, TIED, "--adaptive-softmax-cutoff 10,20"),
            "agg",
            "which has no single output matrix",
        ),
        (MASKED, "agg", "which has no single output matrix"),
        (MASKED, "agps --agps-rare-rank 5", "whose targets are drawn anew"),
    ],
    ids=["adaptive softmax", "masked model", "masked task"],
)
def test_models_and_tasks_that_are_refused(lm_data, base, criterion, words):
    """Models by the loss; tasks by what counts their targets."""

    def first_loss():
        training = build(lm_data, f"--criterion {criterion}", base=base)
        training.criterion.start_update(0)
        training.criterion.train()(training.model.train(), batches(training)[0])

    assert words in one_line(first_loss)


MULTILINGUAL = (*SMALL_MT, *"--lang-pairs en-de,de-en --max-tokens 64 --dropout 0".split())
TASKS = {
    "multilingual_translation": "--arch multilingual_transformer",
    "multilingual_translation, shared": f"--arch multilingual_transformer --share-encoders --share-decoders {TIED}",
    "translation_multi_simple_epoch": "--arch transformer --virtual-epoch-size 100",
}  # fmt: skip


def trainer_of_task(data, task, *options):
    base = ("--task", task.partition(",")[0], *MULTILINGUAL, TASKS[task])
    cfg = configuration(data, *options, base=base)
    torch.manual_seed(1)
    task = tasks.setup_task(cfg.task)
    return Trainer(cfg, task, task.build_model(cfg.model), task.build_criterion(cfg.criterion))


def first_batch(trainer):
    return next(iter(trainer.get_train_iterator(1).next_epoch_itr(shuffle=False)))


@pytest.mark.slow
@pytest.mark.parametrize(("task", "name"), zip(TASKS, ["agg", "face", "agg"], strict=True))
def test_tasks_train_as_with_the_criterion_of_fairseq(task, name, mt_data):
    """Each language pair has its own model, or only its own encoder, or none; a batch is of one
    pair, or of all."""
    losses, options = {}, ""
    if task == "translation_multi_simple_epoch":  # one dictionary for all target languages
        source, target = mt_data / "dict.en.txt", mt_data / "dict.de.txt"
        options = f"--source-dict {source} --target-dict {target}"
    for objective in ("mle", "cross_entropy", name):
        trainer = trainer_of_task(mt_data, task, "--criterion", objective, options)
        np.random.seed(1)
        sample = first_batch(trainer)
        torch.manual_seed(1)
        losses[objective] = [float(trainer.train_step([sample])["loss"]) for _ in range(3)]
    assert losses["mle"] == pytest.approx(losses["cross_entropy"], rel=1e-3)
    assert all(map(math.isfinite, losses[name]))
    if name == "agg":
        pairs = sample.values() if "target" not in sample else [sample]
        tokens = sum((pair["target"] != 1).sum() for pair in pairs)
        assert trainer.criterion.gating.counter.current.sum() == tokens


@pytest.mark.slow
def test_tokens_are_counted_in_one_dictionary(tmp_path):
    """Token 7 is another word in another language; criterions that count nothing do not care."""
    texts, task = {}, "multilingual_translation"
    for side, words in (("en", 20), ("de", 21)):
        for split in ("train", "valid", "test"):
            texts[f"{split}.{side}"] = zipf_text(40, words, prefix=side)
    data = preprocessed(tmp_path, texts, "-s", "en", "-t", "de")
    for name in ("agg", "face", "agps", "freeze_rare"):
        error = one_line(trainer_of_task, data, task, "--criterion", name)
        assert f"the task {task}" in error and "--joined-dictionary" in error
    trainer = trainer_of_task(data, task, "--criterion cosreg")
    assert math.isfinite(trainer.train_step([first_batch(trainer)])["loss"])


@pytest.mark.parametrize("name", ["agg", "f2_softmax"])
def test_unused_parameters_are_looked_for(lm_data, name):
    """DDP copies the output of the model, and asks autograd which parameters it depends on."""
    base = F2_LM if name == "f2_softmax" else LM
    trainer = build_trainer(lm_data, "--criterion", name, base=base)
    sample = batches(trainer)[0]
    expected, _ = gradients(trainer, sample)
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        wrapped = nn.parallel.DistributedDataParallel(trainer.model, find_unused_parameters=True)
        trainer.criterion.gating.roll_back_update()  # DDP has written the weights
        for _ in range(2):
            trainer.model.zero_grad()
            trainer.criterion(wrapped, sample)[0].backward()
            assert_close([parameter.grad for parameter in trainer.model.parameters()], [*expected])
        with torch.no_grad():
            assert trainer.criterion(wrapped, sample)[0].isfinite()
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize("base", [LM, FAMILIES["lstm_lm, tied"]])
def test_no_logits_are_computed(lm_data, monkeypatch, base):
    trainer = build_trainer(lm_data, "--criterion agg", base=base)
    sample, rows, linear = batches(trainer)[0], [], functional.linear
    vocabulary = len(trainer.task.target_dictionary)

    def recorded(features, weight, bias=None):
        if len(weight) == vocabulary:
            rows.append(features[..., 0].numel())
        return linear(features, weight, bias)

    trainer.train_step([sample])  # in which a few positions are compared
    monkeypatch.setattr(functional, "linear", recorded)
    trainer.train_step([sample])
    trainer.valid_step(sample)
    assert not rows
    trainer.model(**sample["net_input"])
    assert rows
