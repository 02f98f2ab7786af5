"""fairseq's families of models and its tasks, and models whose output layer was changed in an
instance or by a fork: the loss and the gradients of fairseq's own criterion, or one line."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fairseq import tasks
from fairseq.models.transformer import TransformerDecoderBase
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from fairseq.modules.quant_noise import quant_noise
from fairseq.trainer import Trainer
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations, spectral_norm, weight_norm
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

from agg_fairseq.fairseq_plugin import output_layer as output_layers
from agg_fairseq.fairseq_plugin.criterions import base
from agg_fairseq.functional import TERMS
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
    count_targets,
    gradients,
    logged,
)

CASES = {
    **FAMILIES,
    "transformer_lm_f2": F2_LM,
    "transformer_f2, tied": (*F2_MT, TIED, "--sentence-avg"),
}


FROZEN = "freeze_rare --freeze-parts bc"


def make(criterion, data, base, of_layer=None, of_decoder=None):
    """The parts of a training whose output layer or decoder may be changed, and two batches."""
    training = build(data, f"--criterion {criterion}", base=base)
    for module in training.model.modules():  # some dropout has no option in all families
        if isinstance(getattr(module, "p", None), float):
            module.p = 0.0
    if of_layer is not None:
        of_layer(output_layers.output_layer(training.model))
    if of_decoder is not None:
        of_decoder(training.model.decoder)
    return training, batches(training)[:2]


def check(ours, theirs, *changed):
    """Compares losses, logs and gradients of two criterions, in two updates: the first decides how
    the model is trained. Gates change the gradients of W alone."""
    losses, others = {ours: [], theirs: []}, {ours: [], theirs: []}
    for name in (ours, theirs):
        (_, task, model, criterion), samples = make(name, *changed)
        model.train(), criterion.train()
        torch.manual_seed(7)
        gated = []
        if ours == FROZEN:
            gated = list(output_layers.output_layer(model).parameters())
        for sample in samples:
            model.zero_grad()
            if name == FROZEN:
                criterion.start_update(0)
                rare = criterion.rare
            loss, size, log = criterion(model, sample)
            loss.backward()
            gradients = []
            for parameter in model.parameters():
                is_gated = any(parameter is one for one in gated)
                gradients.append(parameter.grad[~rare] if is_gated else parameter.grad)
            if name == FROZEN:
                absent = (count_targets([sample], task.target_dictionary) == 0) & rare
                assert absent.any() and not gated[0].grad[absent].any()
            values = logged(criterion, [log])
            assert not {"ul_loss", "adv_loss", "cosreg"} & values.keys(), "terms without a weight"
            values = [values["loss"], values["ppl"], values.get("nll_loss", values["loss"])]
            losses[name].append((loss.detach(), size))
            others[name].append((values, gradients))
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter *= 0.999
    assert_close(*losses.values())
    assert_close(*others.values(), rtol=1e-4, atol=1e-5)


@pytest.mark.grid(6)
@pytest.mark.parametrize("family", CASES)
def test_every_family_trains_as_with_the_criterion_of_fairseq(data_for, family):
    """Also where weight normalization makes W of several parameters."""
    base, theirs = CASES[family], "cross_entropy"
    ours = "f2_softmax" if "_f2" in family else "mle"
    if list(CASES).index(family) % 2:
        ours, theirs = (
            f"{ours} --label-smoothing 0.1",
            "label_smoothed_cross_entropy --label-smoothing 0.1",
        )
    check(ours, theirs, data_for(base), base)


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


def instance(name, change):
    """Sets a method on a part of the model, over its own."""

    def changed(part):
        original = getattr(part, name)
        setattr(part, name, lambda *given, **options: change(original(*given, **options)))

    return changed


def half(output):
    if torch.is_tensor(output):
        return output / 2
    return half(output[0]), *output[1:]


def cooler(log_probs):
    return (log_probs / 2).log_softmax(-1)


def subclass(decoder):
    def get_normalized_probs(self, *given, **options):
        return cooler(type(self).__base__.get_normalized_probs(self, *given, **options))

    methods = {"get_normalized_probs": get_normalized_probs}
    decoder.__class__ = type("Decoder", (type(decoder),), methods)


def checkpointed(part):
    original = part.forward
    part.forward = lambda *given: checkpoint(original, *given, use_reentrant=False)


OF_LAYER = {
    "forward hook": lambda layer: layer.register_forward_hook(lambda p, i, output: half(output)),
    "forward pre-hook": lambda layer: layer.register_forward_pre_hook(lambda p, i: half(i)),
    "forward of the layer": instance("forward", half),
    "weight_norm": weight_norm,
    "spectral_norm": spectral_norm,
    "parametrized weight_norm": parametrizations.weight_norm,
    "quant_noise": lambda layer: quant_noise(layer, 0.5, 8),
}


def scale(decoder):
    decoder.scale = torch.nn.Parameter(torch.tensor(3.0))
    instance("output_layer", lambda logits: decoder.scale * logits)(decoder)


def mask(logits):
    penalty = torch.zeros(logits.shape[1:])
    penalty[1:, 60] = -1e4
    return logits + penalty


def own_logits(change):
    """Makes the logits of the features and of the layer that holds W."""

    def changed(decoder):
        layer = output_layers.output_layer(SimpleNamespace(decoder=decoder))
        decoder.output_layer = lambda features, **options: change(features, layer)

    return changed


OF_DECODER = {
    "hook on the decoder": lambda decoder: decoder.register_forward_hook(lambda p, i, o: half(o)),
    "forward of the decoder": instance("forward", half),
    "in place": instance("forward", lambda output: (output[0].clamp_(-1, 1), *output[1:])),
    "output_layer of the decoder": instance("output_layer", half),
    "soft cap": instance("output_layer", torch.tanh),
    "learned scale": scale,
    "mask": instance("output_layer", mask),
    "functional": own_logits(lambda h, layer: functional.linear(h, layer.weight, layer.bias)),
    "get_normalized_probs": instance("get_normalized_probs", cooler),
    "get_normalized_probs of a class": subclass,
}


@pytest.mark.grid(9)
@pytest.mark.parametrize("family", ["transformer_lm", "lstm_lm", "transformer"])
@pytest.mark.parametrize("way", [*OF_LAYER, *OF_DECODER])
def test_changed_models_train_as_with_the_criterion_of_fairseq(data_for, family, way):
    """Gates are for weights that no layer computes."""
    is_gated = way in OF_DECODER and len(way) % 2 == len(family) % 2
    ours, base = FROZEN if is_gated else "mle", FAMILIES[family]
    check(ours, "cross_entropy", data_for(base), base, OF_LAYER.get(way), OF_DECODER.get(way))


@pytest.mark.parametrize("method", ["output_layer", "forward", "get_normalized_probs"])
def test_the_loss_is_that_of_an_edited_fairseq(lm_data, method, monkeypatch):
    """Which no look at classes and modules could tell."""
    original = getattr(TransformerDecoderBase, method)
    change = cooler if method == "get_normalized_probs" else half

    def edited(self, *given, **options):
        return change(original(self, *given, **options))

    edited.__module__ = original.__module__
    monkeypatch.setattr(TransformerDecoderBase, method, edited)
    own = (TransformerDecoderBase.output_layer,)
    monkeypatch.setattr(output_layers, "OWN_OUTPUT_LAYERS", own)
    assert output_layers.passes_features(build(lm_data).model)
    check("mle", "cross_entropy", lm_data, LM)


def test_a_batch_longer_than_the_table_of_positions(lm_data):
    """The model makes another table in its forward pass, here that of the comparison."""
    check("mle", "cross_entropy", lm_data, (*LM, "--add-bos-token"))


CUTOFF = (*LM, TIED, "--adaptive-softmax-cutoff 10,20")
MASKED = ("--task masked_lm --arch roberta_base --tokens-per-sample 16 --max-tokens 64",)
MASKED += SMALL_MT[len(SMALL_LM) :]  # of the encoder
AGAIN = "does not multiply its features by its output embedding, or does it again in the backward"
NONE, FIXED = "no single output matrix", "whose output embedding is computed or does not train"
OTHER, SUMS = "which changes what its factorized output layer", "gives other sums than 1"


@pytest.mark.parametrize(
    ("name", "base", "of_layer", "of_decoder", "words"),
    [
        ("agg", CUTOFF, None, None, NONE),
        ("agg", MASKED, None, None, NONE),
        ("agps --agps-rare-rank 5", MASKED, None, None, "whose targets are drawn anew"),
        ("mle", LM, checkpoint_wrapper, None, AGAIN),
        ("mle", LM, checkpointed, None, AGAIN),
        ("mle", LM, parametrizations.spectral_norm, None, "changes each time that it is read"),
        ("mle", LM, None, own_logits(lambda h, layer: h @ layer.weight.t()), AGAIN),
        ("mle", LM, None, own_logits(lambda h, layer: layer(h[:, 1:])), "do not fit the targets"),
        ("mle", LM, None, instance("get_normalized_probs", half), SUMS),
        ("mle --adv-epsilon 0.1", LM, None, OF_DECODER["soft cap"], "and --adv-epsilon 0.1"),
        ("f2_softmax", F2_LM, None, instance("forward", half), OTHER),
        ("f2_softmax --f2-classes 3", F2_LM, None, None, "no --f2-classes"),
        (
            "f2_softmax --adaptive-softmax-cutoff 20,40",
            F2_LM,
            None,
            None,
            "found --adaptive-softmax",
        ),
        ("f2_softmax", LM, None, None, "--arch transformer_lm_f2"),
        ("agg", F2_LM, None, None, "--criterion f2_softmax"),
        ("freeze_rare", LM, weight_norm, None, FIXED),
        ("freeze_rare", LM, lambda layer: layer.requires_grad_(False), None, FIXED),
    ],
)
def test_models_and_tasks_that_are_refused(lm_data, name, base, of_layer, of_decoder, words):
    def first_loss():
        (_, _, model, criterion), samples = make(name, lm_data, base, of_layer, of_decoder)
        criterion.train().start_update(0)
        criterion(model.train(), samples[0])

    assert words in one_line(first_loss)


def test_a_term_of_the_logits_is_refused_where_a_model_gives_log_probabilities(
    lm_data, monkeypatch
):
    """Of which a z-loss would be 0."""
    z_loss = TERMS[0]._replace(option="z_gamma", takes_log_probs=False)
    (_, _, model, criterion), samples = make("mle", lm_data, LM, None, OF_DECODER["soft cap"])
    monkeypatch.setattr(base, "TERMS", (*TERMS, z_loss))
    criterion.training_loss.weights["z_gamma"] = 0.5
    criterion.train().start_update(0)
    assert "and --z-gamma 0.5" in one_line(criterion, model.train(), samples[0])
