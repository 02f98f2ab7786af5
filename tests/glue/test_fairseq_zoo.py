"""fairseq's families of models and its tasks: the same loss as with fairseq's criterion, or one line.

`test_combinations.py` trains every family with every criterion.
"""

import copy
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fairseq import tasks
from fairseq.data import iterators
from fairseq.trainer import Trainer
from fairseq.utils import import_user_module
from omegaconf import OmegaConf
from torch import nn
from torch.nn import functional

from agg_fairseq.checkpoints.fairseq_checkpoint import Checkpoint
from agg_fairseq.errors import UserError
from agg_fairseq.fairseq_glue import output_layer as glue
from benchmarks.output_layer_model import OutputLayerModel, OutputLayerTask, batch, criterion
from tests.conftest import ROOT, run_command, zipf_text
from tests.small_trainings import FAMILIES, LM, MT, SMALL_MT, build, configuration, logged, trainer_for

EXAMPLES = next(path for path in (ROOT / ".venv").glob("lib/*/site-packages/fairseq/examples"))


def data_of(base, lm_data, mt_data):
    return lm_data if "language_modeling" in base else mt_data


def first_batch(trainer):
    """The first batch of the training split, whatever the task makes of one."""
    iterator = trainer.get_train_iterator(epoch=1, load_dataset=True)
    groups = iterators.GroupedIterator(iterator.next_epoch_itr(shuffle=False), 1)
    return next(groups)[0]


@pytest.mark.grid(3)
@pytest.mark.parametrize("family", FAMILIES)
def test_loss_gradients_and_log_are_those_of_fairseq(lm_data, mt_data, family):
    """Without gates: of every parameter, those that weight normalization makes W of included; with label smoothing."""
    base, smoothing = FAMILIES[family], 0.1 * (list(FAMILIES).index(family) % 2)
    data = data_of(base, lm_data, mt_data)
    options = ("--label-smoothing", smoothing) if smoothing else ()
    cfg, task, model, ours = build(data, "--criterion", "mle", *options, base=base)
    theirs = ("--criterion", "label_smoothed_cross_entropy" if smoothing else "cross_entropy", *options)
    theirs = task.build_criterion(configuration(data, *theirs, base=base).criterion)
    for module in model.modules():  # some options of dropout have no 0 in all of these families
        if isinstance(getattr(module, "p", None), float):
            module.p = 0.0
    sample = next(task.get_batch_iterator(task.dataset("train"), max_tokens=64).next_epoch_itr(shuffle=False))
    gradients, losses, logs = [], [], []
    for objective in (ours, theirs):
        model.zero_grad()
        loss, size, log = objective(model, sample)
        loss.backward()
        gradients.append({key: parameter.grad for key, parameter in model.named_parameters()})
        losses.append((loss, size))
        logs.append(logged(objective, [log]))
    torch.testing.assert_close(*losses)
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)
    found, expected = logs
    assert found["loss"] == pytest.approx(expected["loss"], rel=1e-4)
    assert found["ppl"] == pytest.approx(expected["ppl"], rel=1e-4)
    assert found["nll_loss"] == pytest.approx(expected.get("nll_loss", expected["loss"]), rel=1e-4)
    assert functional.linear is torch._C._nn.linear, "what was replaced has been put back"


@pytest.mark.parametrize("family", ["fconv_lm", "fconv, tied"])
def test_checkpoints_of_convolutional_models_are_measured(lm_data, mt_data, tmp_path, family):
    """Their output layer has weight normalization, unless it is tied."""
    base = FAMILIES[family]
    cfg, _, model, _ = build(data_of(base, lm_data, mt_data), "--criterion", "mle", base=base)
    with torch.no_grad():
        for parameter in model.decoder.fc3.parameters():
            parameter.add_(torch.randn_like(parameter))  # g is no longer the length of v
    state = {"cfg": OmegaConf.to_container(cfg), "model": model.state_dict()}
    torch.save(state, tmp_path / "c.pt")
    checkpoint = Checkpoint(tmp_path / "c.pt")
    found = checkpoint.output_embedding
    model.eval()
    model.decoder.fc3(torch.zeros(1, model.decoder.fc3.in_features))  # forms the weight anew
    torch.testing.assert_close(found.weight, model.decoder.fc3.weight.detach())
    assert found.description == ("decoder.fc3.weight(tied)" if "tied" in family else "decoder.fc3.weight")
    checkpoint.check_vocabulary(len(found.weight), "DATA")
    with pytest.raises(UserError, match=f"found a vocabulary of {len(found.weight)} tokens"):
        checkpoint.check_vocabulary(7, "DATA")
    if "tied" not in family:
        state["model"]["decoder.fc3.weight_v"][3] = 0
        torch.save(state, tmp_path / "zero.pt")
        with pytest.raises(UserError, match="found an infinity or NaN in decoder.fc3.weight"):
            Checkpoint(tmp_path / "zero.pt").output_embedding  # noqa: B018


@pytest.mark.parametrize(("family", "options"), [("fconv_lm", ("mle", "--center-output")), ("fconv", ("freeze_rare",))])
def test_rows_that_weight_normalization_makes_cannot_be_changed(lm_data, mt_data, family, options, capsys):
    base = FAMILIES[family]
    trainer, _ = trainer_for(data_of(base, lm_data, mt_data), "--criterion", *options, base=base)
    assert "weight normalization" in refusal(capsys, lambda: trainer.train_step([first_batch(trainer)]))


@pytest.mark.parametrize("family", ["transformer_lm", "lightconv_lm"])
def test_an_adaptive_softmax_is_refused(lm_data, family, capsys):
    base = (*FAMILIES[family], "--adaptive-softmax-cutoff", "10,20")
    trainer, _ = trainer_for(lm_data, "--criterion", "agg", base=base)
    error = refusal(capsys, lambda: trainer.train_step([first_batch(trainer)]))
    assert "adaptive softmax" in error and "expected a model whose logits" in error


def multilingual(task, *options):
    return ("--task", task, "--lang-pairs", "en-de,de-en", "--max-tokens", "64", "--dropout", "0", *options)


TASKS = {
    "multilingual_translation": multilingual(
        "multilingual_translation", "--arch", "multilingual_transformer", *SMALL_MT
    ),
    "multilingual_translation, shared": multilingual(
        "multilingual_translation", "--arch", "multilingual_transformer", *SMALL_MT, "--share-encoders",
        "--share-decoders", "--share-decoder-input-output-embed",
    ),
    "multilingual_translation_latent_depth": multilingual(
        "multilingual_translation_latent_depth", "--arch", "latent_multilingual_transformer", *SMALL_MT,
        "--share-encoders", "--share-decoders", "--encoder-latent-layer", "--decoder-latent-layer",
    ),
    "translation_multi_simple_epoch": multilingual(
        "translation_multi_simple_epoch", "--arch", "transformer", *SMALL_MT, "--virtual-epoch-size", "100",
    ),
    "laser": ("--task", "laser", "--arch", "laser_lstm", "--max-tokens", "64", "--dropout", "0",
              "--encoder-embed-dim", "16", "--decoder-embed-dim", "16", "--decoder-lang-embed-dim", "4"),
    "translation_moe": (*MT, "--task", "translation_moe", "--method", "hMoEup", "--num-experts", "2"),
    "translation_lev": (
        "--task", "translation_lev", "--noise", "full_mask", "--arch", "levenshtein_transformer", *SMALL_MT,
        "--max-tokens", "64",
    ),
}  # fmt: skip
TRAINED = list(TASKS)[:5]


@pytest.fixture(scope="module")
def laser_data(tmp_path_factory):
    """The configuration file of two language pairs, in the format that this task reads."""
    folder, train = tmp_path_factory.mktemp("laser"), []
    for number, pair in enumerate(("a-x", "b-y")):
        path = folder / "corpus" / pair
        path.mkdir(parents=True)
        for seed, side in enumerate(("in", "out")):
            (path / f"train.{side}").write_text("\n".join(zipf_text(40, words=30, seed=seed)) + "\n")
        run_command(
            "fairseq-preprocess", "-s", "in", "-t", "out", "--trainpref", path / "train", "--destdir", path,
            "--dataset-impl", "cached", "--joined-dictionary",
        )  # fmt: skip
        train.append({"id": number, "src": f"{path}/train.in-out.in", "tgt": f"{path}/train.in-out.out"})
    config = {"src_vocab": f"{path}/dict.in.txt", "tgt_vocab": f"{path}/dict.out.txt", "train": train}
    (folder / "config.json").write_text(json.dumps(config))
    return folder / "config.json"


def trainer_of_task(task, request, *options):
    """A trainer whose task and model may be of a folder of fairseq's examples."""
    examples = {"laser": "laser/laser_src", "translation_moe": "translation_moe/translation_moe_src"}
    examples["multilingual_translation_latent_depth"] = "latent_depth/latent_depth_src"
    if task in examples:
        import_user_module(SimpleNamespace(user_dir=str(EXAMPLES / examples[task])))
    data = request.getfixturevalue("laser_data" if task == "laser" else "mt_data")
    cfg = configuration(data, *options, base=TASKS[task])
    torch.manual_seed(1)
    task = tasks.setup_task(cfg.task)
    model, objective = task.build_model(cfg.model), task.build_criterion(cfg.criterion)
    return Trainer(cfg, task, model, objective)


@pytest.mark.slow
@pytest.mark.parametrize("task", TRAINED)
def test_tasks_train_as_with_the_criterion_of_fairseq(task, request):
    """Each language pair has its own model, or only its own encoder, or none; a batch is of one pair, or of all."""
    losses, start = {}, None
    for name in ("mle", "cross_entropy"):
        trainer = trainer_of_task(task, request, "--criterion", name)
        start = start or copy.deepcopy(trainer.model.state_dict())  # latent depth leaves its logits uninitialized
        trainer.model.load_state_dict(start)
        np.random.seed(1)
        sample = first_batch(trainer)
        torch.manual_seed(1)
        losses[name] = [float(trainer.train_step([sample])["loss"]) for _ in range(3)]
    assert losses["mle"] == pytest.approx(losses["cross_entropy"], rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(("task", "name"), zip(TRAINED, ["agg", "face", "agg", "unlikelihood", "agg"], strict=True))
def test_criterions_train_on_several_language_pairs(task, name, request):
    trainer = trainer_of_task(task, request, "--criterion", name)
    sample = first_batch(trainer)
    for _ in range(3):
        assert math.isfinite(trainer.train_step([sample])["loss"])
    if name == "agg":  # the targets of all pairs of an update are counted
        pad, pairs = 1, sample.values() if "target" not in sample else [sample]
        tokens = sum(int((pair["target"] != pad).sum()) for pair in pairs)
        assert int(trainer.criterion.agg.counter.current.sum()) == tokens


@pytest.mark.slow
def test_one_dictionary_may_be_given_for_all_target_languages(mt_data, request):
    files = ("--source-dict", mt_data / "dict.en.txt", "--target-dict", mt_data / "dict.de.txt")
    trainer = trainer_of_task("translation_multi_simple_epoch", request, "--criterion", "agg", *files)
    assert trainer.criterion.vocabularies == {len(trainer.task.target_dictionary)}
    assert math.isfinite(trainer.train_step([first_batch(trainer)])["loss"])


def refusal(capsys, call):
    """The one line with which a call ends."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop:
        call()
    error = capsys.readouterr().err
    assert stop.value.code == 2 and error.count("\n") == 1, error
    return error


@pytest.mark.slow
@pytest.mark.parametrize("task", TRAINED)
def test_counts_of_one_training_set_are_refused_by_the_name_of_the_task(task, request, capsys):
    options = ("agps", "--agps-rare-rank", 10) if "latent" in task else ("freeze_rare",)
    trainer = trainer_of_task(task, request, "--criterion", *options)
    error = refusal(capsys, lambda: trainer.get_train_iterator(epoch=1))
    assert f"the task {task.partition(',')[0]}," in error and "expected language_modeling or translation" in error


@pytest.mark.slow
def test_tasks_that_form_their_own_loss_are_refused(request, capsys):
    trainer = trainer_of_task("translation_moe", request, "--criterion", "agg")
    error = refusal(capsys, lambda: trainer.train_step([first_batch(trainer)]))
    assert "the task translation_moe" in error and "fairseq's cross_entropy" in error
    trainer = trainer_of_task("translation_lev", request, "--criterion", "agg")
    error = refusal(capsys, lambda: trainer.train_step([first_batch(trainer)]))
    assert "LevenshteinTransformerModel" in error and "tgt_tokens" in error


@pytest.mark.slow
def test_tokens_are_counted_in_one_dictionary(tmp_path, capsys):
    """Token 7 is another word in another language; criterions that count nothing do not care."""
    for seed, side in enumerate(("en", "de")):
        (tmp_path / f"train.{side}").write_text("\n".join(zipf_text(40, words=20 + seed, prefix=side)) + "\n")
    run_command(
        "fairseq-preprocess", "-s", "en", "-t", "de", "--trainpref", tmp_path / "train", "--destdir", tmp_path / "bin"
    )
    base = TASKS["multilingual_translation"]
    for name in ("agg", "face", "agps", "freeze_rare"):
        error = refusal(capsys, lambda name=name: trainer_for(tmp_path / "bin", "--criterion", name, base=base))
        assert "the task multilingual_translation" in error and "--joined-dictionary" in error
    trainer, _ = trainer_for(tmp_path / "bin", "--criterion", "cosreg", base=base)
    assert len(trainer.criterion.vocabularies) == 2
    assert math.isfinite(trainer.train_step([first_batch(trainer)])["loss"])


class Model(OutputLayerModel):
    """An output layer, and what follows it: a function of the model, the features and the logits."""

    def __init__(self, change):
        super().__init__(8, 64)
        self.change = change
        self.scale, self.late_bias = nn.Parameter(torch.ones(())), nn.Parameter(torch.zeros(64))

    def forward(self, features, **options):
        return self.change(self, features, super().forward(features)[0]), None


def forward_of(change):
    task = OutputLayerTask(64)
    torch.manual_seed(3)
    model, sample = Model(change), batch(16, 8, 64, "cpu", steps=8)
    return criterion("mle", task), criterion("cross_entropy", task), model, sample


@pytest.mark.parametrize(
    "change",
    [
        lambda model, features, logits: logits,
        lambda model, features, logits: logits.flatten(0, 1).view(2, 8, -1),
        lambda model, features, logits: logits.transpose(0, 1).contiguous().transpose(0, 1),
        lambda model, features, logits: logits.double(),
    ],
)
def test_logits_may_be_reshaped_and_cast(change):
    ours, theirs, model, sample = forward_of(change)
    torch.testing.assert_close(ours(model, sample)[0], theirs(model, sample)[0], check_dtype=False)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda model, features, logits: 0.5 * logits, "changes its logits"),
        (lambda model, features, logits: logits.masked_fill(torch.arange(64) == 1, -math.inf), "changes its logits"),
        (lambda model, features, logits: model.scale * logits, "one linear layer alone"),
        (lambda model, features, logits: logits + model.late_bias, "one linear layer alone"),
        (lambda model, features, logits: logits.detach(), "one linear layer alone"),
        (lambda model, features, logits: logits.view(2, 8, 64), "cannot be left out"),
        (lambda model, features, logits: {"word_ins": logits}, "cannot be left out"),
    ],
)
def test_models_that_do_more_with_their_logits_are_refused(change, words, capsys):
    """Also where it makes no difference yet: a scale of 1 and a bias of 0 would be left untrained."""
    ours, _, model, sample = forward_of(change)
    assert words in refusal(capsys, lambda: ours(model, sample))
    assert functional.linear is torch._C._nn.linear


def test_looking_for_the_layer_disturbs_nothing():
    """Neither random numbers, nor modes, nor what a recurrent model carries to the next batch."""

    def recurrent(model, features, logits):
        model.state = 1 if model.state is None else model.state + 1
        model.states[model.training] = model.state
        model.history.append(model.state)
        return logits + 0 * torch.rand(())

    ours, _, model, sample = forward_of(recurrent)
    model.state, model.states, model.history = None, {True: 7}, [7]
    model.train()
    model.decoder.eval()
    state = torch.get_rng_state()
    layer = glue.output_layer(model, sample["net_input"], {64}, "mle")
    assert torch.equal(torch.get_rng_state(), state)
    assert (model.state, model.states, model.history) == (None, {True: 7}, [7])
    assert model.training and not model.decoder.training and torch.is_grad_enabled()
    assert layer.weight is model.decoder.output_projection.weight
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_layer_that_is_applied_twice_in_training_is_refused(capsys):
    def twice(model, features, logits):
        return model.decoder(features)[0] if model.training else logits

    ours, _, model, sample = forward_of(twice)
    assert "applied its output layer 2 times" in refusal(capsys, lambda: ours(model, sample))


@pytest.mark.parametrize("base", [LM, FAMILIES["lstm_lm, tied"]])
def test_no_logits_are_computed(lm_data, monkeypatch, base):
    """Not even once: neither in training nor in validation is there a product with V rows outside of the operation."""
    trainer, _ = trainer_for(lm_data, "--criterion", "agg", base=base)
    sample, rows, linear = first_batch(trainer), [], functional.linear

    def recorded(features, weight, bias=None):
        rows.append(len(weight))
        return linear(features, weight, bias)

    monkeypatch.setattr(functional, "linear", recorded)
    trainer.train_step([sample])
    trainer.valid_step(sample)
    assert len(trainer.task.target_dictionary) not in rows
    trainer.model(**sample["net_input"])
    assert rows[-1] == len(trainer.task.target_dictionary)
