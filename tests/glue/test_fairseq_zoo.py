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

from benchmarks.output_layer_model import OutputLayerModel, OutputLayerTask, batch, criterion
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


def test_an_adaptive_softmax_is_refused(lm_data, capsys):
    base = (*LM, TIED, "--adaptive-softmax-cutoff", "10,20")
    trainer, _ = build_trainer(lm_data, "--criterion", "agg", base=base)
    error = one_line(capsys, trainer.train_step, [first_batch(trainer)])
    assert "which has no single output matrix" in error


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
        assert int(trainer.criterion.gating.counter.current.sum()) == tokens


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


@pytest.mark.parametrize("name", ["agg", "agps"])
def test_masked_models_are_refused(lm_data, name, capsys):
    """Of the model by the loss; of the task by what counts its targets."""
    base = "--task masked_lm --arch roberta_base --tokens-per-sample 16 --max-tokens 64".split()
    base += [option.replace("decoder", "encoder") for option in SMALL_LM]
    options = {"agg": ("--agg-rare-fraction", 0.3), "agps": ("--agps-rare-rank", 5)}[name]

    def first_loss():
        cfg, task, model, criterion = build(lm_data, "--criterion", name, *options, base=base)
        criterion.start_update(0)
        criterion.train()(model.train(), batches(cfg, task)[0])

    words = {"agg": "no single output matrix", "agps": "whose targets are drawn anew"}[name]
    assert words in one_line(capsys, first_loss)


class Model(OutputLayerModel):
    """An output layer of its own, `layer(decoder, features)`, and what follows it."""

    def __init__(self, layer, behind):
        super().__init__(8, 64)
        self.behind, decoder = behind, self.decoder
        decoder.scale = nn.Parameter(torch.full((), 3.0))
        methods = {"output_layer": lambda self, features: layer(self, features)}
        decoder.__class__ = type("Decoder", (type(decoder),), methods)

    def forward(self, src_tokens):
        return self.behind(self, super().forward(src_tokens)[0]), None


def plain(decoder, features):
    return decoder.output_projection(features)


def masked(decoder, features):
    mask = torch.zeros(features.size(1), 64)
    mask[1:, 5] = -1e4
    return plain(decoder, features) + mask


OWN_LOGITS = {
    "soft cap": (lambda d, h: 30 * torch.tanh(plain(d, h) / 30), lambda model, z: z),
    "learned scale": (lambda d, h: d.scale * plain(d, h), lambda model, z: z),
    "mask": (masked, lambda model, z: z),
    "functional": (lambda d, h: functional.linear(h, d.output_projection.weight), lambda m, z: z),
    "behind the decoder": (plain, lambda model, z: model.decoder.scale * z),
    "in place": (plain, lambda model, z: z.clamp_(-1, 1)),
}


@pytest.mark.parametrize("case", OWN_LOGITS)
@pytest.mark.parametrize("name", ["mle", "freeze_rare"])
def test_models_with_logits_of_their_own(case, name):
    """All behind `H Wᵀ` is the model's own, and only its gradient into W is gated."""
    model, sample = Model(*OWN_LOGITS[case]), batch(16, 8, 64, "cpu", steps=8)
    leaves = sample["net_input"]["src_tokens"], *model.parameters()
    with torch.no_grad():
        model.decoder.output_projection.weight.mul_(20)  # for which the soft cap matters
    ours = criterion(name, OutputLayerTask(64), **({"freeze_parts": "bc"} if name != "mle" else {}))
    ours.train().start_update(1)
    found, logits = ours(model, sample)[0], model(leaves[0])[0]
    target = sample["target"].flatten()
    expected = functional.cross_entropy(logits.flatten(0, 1), target, reduction="sum")
    assert_close(found, expected)
    found, expected = (
        torch.autograd.grad(loss, leaves, allow_unused=True) for loss in (found, expected)
    )
    for parameter, one, other in zip(leaves, found, expected, strict=True):
        if parameter is model.decoder.output_projection.weight and name == "freeze_rare":
            absent = ours.rare & (torch.bincount(target, minlength=64) == 0)
            assert absent.any() and not one[absent].any()
            one, other = one[~ours.rare], other[~ours.rare]
        assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_what_a_model_does_with_its_features(capsys):
    """A method needs the features of each target in its place, and --adv-epsilon those alone."""
    for layer, options, words in (
        (lambda d, h: plain(d, h[:, 1:]), {}, "whose features do not fit the targets"),
        (lambda d, h: h @ d.output_projection.weight.t(), {}, "does not multiply its features"),
        (OWN_LOGITS["soft cap"][0], {"adv_epsilon": 0.1}, "and --adv-epsilon 0.1"),
    ):
        model, sample = Model(layer, lambda model, z: z), batch(16, 8, 64, "cpu", steps=8)
        ours = criterion("mle", OutputLayerTask(64), **options)
        assert words in one_line(capsys, ours, model, sample)


@pytest.mark.parametrize("name", ["agg", "f2_softmax"])
def test_unused_parameters_are_looked_for(lm_data, name):
    """DDP copies the output of the model, and asks autograd which parameters it depends on."""
    base = F2_LM if name == "f2_softmax" else LM
    trainer, _ = build_trainer(lm_data, "--criterion", name, base=base)
    sample = first_batch(trainer)
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
    trainer, _ = build_trainer(lm_data, "--criterion", "agg", base=base)
    sample, rows, linear = first_batch(trainer), [], functional.linear
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
