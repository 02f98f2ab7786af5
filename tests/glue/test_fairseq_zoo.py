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

from agg_fairseq.modules.linear_logits import LARGEST
from benchmarks.output_layer_model import OutputLayerModel, OutputLayerTask, batch, criterion
from tests.commands import one_line
from tests.conftest import preprocessed, zipf_text
from tests.small_trainings import (
    F2_LM,
    F2_MT,
    FAMILIES,
    LM,
    SMALL_MT,
    TIED,
    batches,
    build,
    configuration,
    gradients,
    logged,
    trainer_for,
)


def first_batch(trainer):
    iterator = trainer.get_train_iterator(epoch=1, load_dataset=True)
    return next(iter(iterator.next_epoch_itr(shuffle=False)))


CASES = {
    **FAMILIES,
    "transformer_lm_f2": F2_LM,
    "transformer_f2, tied": (*F2_MT, TIED, "--sentence-avg"),
}


@pytest.mark.grid(6)
@pytest.mark.parametrize("family", CASES)
def test_loss_gradients_and_log_are_those_of_fairseq(lm_data, mt_data, family):
    """Gradients of every parameter, without gates, also where weight normalization makes W of
    several."""
    base, options, name = CASES[family], (), "cross_entropy"
    data = lm_data if "language_modeling" in base else mt_data
    if list(CASES).index(family) % 2:
        options, name = ("--label-smoothing", 0.1), "label_smoothed_cross_entropy"
    criterion = ("mle",)
    if "_f2" in family:
        criterion = ("f2_softmax",)
    elif "conv" in family:
        criterion = ("cosreg", "--cosreg-gamma", "0")  # cosreg takes everything
    cfg, task, model, ours = build(data, "--criterion", *criterion, *options, base=base)
    theirs = configuration(data, "--criterion", name, *options, base=base).criterion
    theirs = task.build_criterion(theirs)
    for module in model.modules():  # some options of dropout have no 0 in all of these families
        if isinstance(getattr(module, "p", None), float):
            module.p = 0.0
    sample, results = batches(cfg, task)[0], []
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


@pytest.mark.parametrize(
    "base", [FAMILIES["fconv_lm"], (*LM, TIED, "--adaptive-softmax-cutoff", "10,20")]
)
def test_models_that_are_refused(lm_data, base, capsys):
    """Convolutional decoders have no `output_layer`, and an adaptive softmax is no linear one."""
    trainer, _ = trainer_for(lm_data, "--criterion", "agg", base=base)
    error = one_line(capsys, trainer.train_step, [first_batch(trainer)])
    assert "whose decoder has another output layer" in error


MULTILINGUAL = (*SMALL_MT, *"--lang-pairs en-de,de-en --max-tokens 64 --dropout 0".split())
TASKS = {
    "multilingual_translation": ("--arch", "multilingual_transformer"),
    "multilingual_translation, shared": (
        "--arch", "multilingual_transformer", "--share-encoders", "--share-decoders", TIED,
    ),
    "translation_multi_simple_epoch": ("--arch", "transformer", "--virtual-epoch-size", "100"),
}  # fmt: skip


def trainer_of_task(data, task, *options):
    base = ("--task", task.partition(",")[0], *MULTILINGUAL, *TASKS[task])
    cfg = configuration(data, *options, base=base)
    torch.manual_seed(1)
    task = tasks.setup_task(cfg.task)
    return Trainer(cfg, task, task.build_model(cfg.model), task.build_criterion(cfg.criterion))


@pytest.mark.slow
@pytest.mark.parametrize(("task", "name"), zip(TASKS, ["agg", "face", "agg"], strict=True))
def test_tasks_train_as_with_the_criterion_of_fairseq(task, name, mt_data):
    """Each language pair has its own model, or only its own encoder, or none; a batch is of one
    pair, or of all."""
    losses, options = {}, ()
    if task == "translation_multi_simple_epoch":  # one dictionary for all target languages
        source, target = mt_data / "dict.en.txt", mt_data / "dict.de.txt"
        options = ("--source-dict", source, "--target-dict", target)
    for objective in ("mle", "cross_entropy", name):
        trainer = trainer_of_task(mt_data, task, "--criterion", objective, *options)
        np.random.seed(1)
        sample = first_batch(trainer)
        torch.manual_seed(1)
        losses[objective] = [float(trainer.train_step([sample])["loss"]) for _ in range(3)]
    assert losses["mle"] == pytest.approx(losses["cross_entropy"], rel=1e-3)
    assert all(map(math.isfinite, losses[name]))
    if name == "agg":
        pairs = sample.values() if "target" not in sample else [sample]
        tokens = sum(int((pair["target"] != 1).sum()) for pair in pairs)
        assert int(trainer.criterion.objective.counter.current.sum()) == tokens


@pytest.mark.slow
def test_tokens_are_counted_in_one_dictionary(tmp_path, capsys):
    """Token 7 is another word in another language; criterions that count nothing do not care."""
    texts, task = {}, "multilingual_translation"
    for side, words in (("en", 20), ("de", 21)):
        for split in ("train", "valid", "test"):
            texts[f"{split}.{side}"] = zipf_text(40, words, prefix=side)
    data = preprocessed(tmp_path, texts, "-s", "en", "-t", "de")
    for name in ("agg", "face", "agps", "freeze_rare"):
        error = one_line(capsys, trainer_of_task, data, task, "--criterion", name)
        assert f"the task {task}" in error and "--joined-dictionary" in error
    trainer = trainer_of_task(data, task, "--criterion", "cosreg")
    assert math.isfinite(trainer.train_step([first_batch(trainer)])["loss"])


class Model(OutputLayerModel):
    """An output layer of its own, `of_layer(decoder, features)`, and what follows it."""

    def __init__(self, of_layer, behind):
        super().__init__(8, 64)
        self.behind, decoder = behind, self.decoder
        decoder.scale = nn.Parameter(torch.ones(()))
        methods = {"output_layer": lambda self, features: of_layer(self, features)}
        decoder.__class__ = type("Decoder", (type(decoder),), methods)

    def forward(self, features, **options):
        return self.behind(self, super().forward(features)[0]), None


def plain(decoder, features):
    return decoder.output_projection(features)


def unchanged(model, logits):
    return logits


def masked_from_the_second_position(decoder, features):
    mask = torch.zeros(features.size(1), 64)
    mask[1:, 5] = -math.inf
    return plain(decoder, features) + mask


def soft_capped(decoder, features):
    return 30 * torch.tanh(plain(decoder, features) / 30)


def test_a_soft_cap_is_trained_but_not_adversarially(capsys):
    model, sample = Model(soft_capped, unchanged), batch(16, 8, 64, "cpu", steps=8)
    features, weight = sample["net_input"]["src_tokens"], model.decoder.output_projection.weight
    with torch.no_grad():
        weight.mul_(20)  # for which the soft cap matters
    found = criterion("mle", OutputLayerTask(64))(model, sample)[0]
    logits, target = model(features)[0].flatten(0, 1), sample["target"].flatten()
    expected = functional.cross_entropy(logits, target, reduction="sum")
    assert_close(found, expected)
    gradients = [torch.autograd.grad(loss, (features, weight)) for loss in (found, expected)]
    assert_close(*gradients, rtol=1e-4, atol=1e-3)
    adversarial = criterion("mle", OutputLayerTask(64), adv_epsilon=0.1)
    words = "found --adv-epsilon 0.1 and a model that soft-caps its logits"
    assert words in one_line(capsys, adversarial, model, sample)


def test_models_that_do_more_with_their_logits_are_refused(capsys):
    something_else = "returns something else"
    for of_layer, behind, words in (
        (lambda d, h: d.scale * plain(d, h), unchanged, "depends on decoder.scale beside"),
        (lambda d, h: plain(d, h.detach()).detach(), unchanged, "not depend on decoder.output_pr"),
        (masked_from_the_second_position, unchanged, "output_layer is not s (H Wᵀ + b)"),
        (plain, lambda model, z: model.decoder.scale * z, something_else),
        (plain, lambda model, z: z.clamp_(-1, 1), something_else),
    ):
        model, sample = Model(of_layer, behind), batch(16, 8, 64, "cpu", steps=8)
        assert words in one_line(capsys, criterion("mle", OutputLayerTask(64)), model, sample)
        assert "output_layer" not in vars(model.decoder), "what was replaced has been put back"


@pytest.mark.parametrize("name", ["agg", "f2_softmax"])
def test_unused_parameters_are_looked_for(lm_data, name):
    """DDP copies the output of the model, and asks autograd which parameters it depends on."""
    base = F2_LM if name == "f2_softmax" else LM
    trainer, _ = trainer_for(lm_data, "--criterion", name, base=base)
    sample = first_batch(trainer)
    expected, _ = gradients(trainer, sample)
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        wrapped = nn.parallel.DistributedDataParallel(trainer.model, find_unused_parameters=True)
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
    """Only random features go through the layer, once in training and once in validation."""
    trainer, _ = trainer_for(lm_data, "--criterion", "agg", base=base)
    sample, rows, linear = first_batch(trainer), [], functional.linear
    vocabulary = len(trainer.task.target_dictionary)

    def recorded(features, weight, bias=None):
        if len(weight) == vocabulary:
            rows.append(features[..., 0].numel())
        return linear(features, weight, bias)

    monkeypatch.setattr(functional, "linear", recorded)
    trainer.train_step([sample])
    trainer.valid_step(sample)
    assert len(rows) <= 2 and max(rows, default=0) <= len(LARGEST)
    trainer.model(**sample["net_input"])
    assert rows[-1] > len(LARGEST)
