"""fairseq's transformers with another output layer: their sizes, their ties, and placeholders until
training starts."""

import pytest
import torch
from fairseq import tasks
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_INV_REGISTRY
from fairseq.trainer import Trainer

from agg_fairseq.functional import log_unigram
from agg_fairseq.modules import UnigramLinear
from tests.commands import one_line
from tests.small_trainings import (
    F2_LM,
    F2_MT,
    LM,
    MT,
    batches,
    build,
    configuration,
    target_counts,
    trainer_for,
)

UNIGRAM_LM = [*LM, "--arch", "transformer_lm_unigram"]
UNIGRAM_MT = [*MT, "--arch", "transformer_unigram_tiny"]
CRITERIONS = {"f2": "f2_softmax", "unigram": "agg"}
OF_LAYER = {"f2": {"class_weight", "class_of_token"}, "unigram": {"bias_shift", "counts"}}
BASES = [("f2", F2_LM), ("f2", F2_MT), ("unigram", UNIGRAM_LM), ("unigram", UNIGRAM_MT)]
LAYER = "decoder.output_projection"


@pytest.mark.parametrize("name", ["f2", "unigram"])
@pytest.mark.parametrize("parent", ["transformer_lm", "transformer"])
def test_every_architecture_of_the_parent_has_its_sizes(parent, name):
    names = {
        f"{parent}_{name}{theirs.removeprefix(parent)}"
        for theirs in ARCH_MODEL_INV_REGISTRY[parent]
    }
    found = set(ARCH_MODEL_INV_REGISTRY[f"{parent}_{name}"])
    assert len(found) >= 6 and found <= names
    # these end in an adaptive softmax
    assert all(name.endswith(("wiki103", "gbw")) for name in names - found)
    for ours in found - {f"{parent}_{name}"}:
        assert ARCH_CONFIG_REGISTRY[ours] is ARCH_CONFIG_REGISTRY[ours.replace(f"_{name}", "", 1)]


@pytest.mark.parametrize(
    ("name", "base"), BASES, ids=["f2 lm", "f2 mt", "unigram lm", "unigram mt"]
)
def test_the_output_embedding_is_that_of_the_parent(lm_data, mt_data, name, base):
    """Tied where asked, and the rest of the model is the same."""
    data, is_lm = (lm_data, True) if "language_modeling" in base else (mt_data, False)
    tie = "--share-decoder-input-output-embed" if is_lm else "--share-all-embeddings"
    parent = [part.replace(f"_{name}", "") for part in base]
    for options in ((), (tie,)):
        model = build(data, "--criterion", CRITERIONS[name], *options, base=base)[2]
        plain = build(data, "--criterion", "mle", *options, base=parent)[2]
        layer = model.decoder.output_projection
        assert (layer.weight is model.decoder.embed_tokens.weight) == bool(options)
        assert is_lm or (layer.weight is model.encoder.embed_tokens.weight) == bool(options)
        assert layer.weight.equal(plain.decoder.output_projection.weight)
        assert set(model.state_dict()) - set(plain.state_dict()) == {
            f"{LAYER}.{part}" for part in OF_LAYER[name]
        }
        added = sum(
            parameter.numel()
            for part, parameter in layer.named_parameters()
            if part in OF_LAYER[name]
        )
        assert (
            sum(p.numel() for p in model.parameters())
            == sum(p.numel() for p in plain.parameters()) + added
        )


@pytest.mark.parametrize(("name", "base"), [BASES[0], BASES[2]], ids=["f2", "unigram"])
def test_the_training_data_are_counted_when_training_starts(lm_data, monkeypatch, name, base):
    """Not when a model is built; nor where a checkpoint has brought its own classes, or counts."""
    counted = []
    from agg_fairseq.fairseq_plugin import trainer as hooked

    original = hooked.training_counts
    monkeypatch.setattr(
        hooked, "training_counts", lambda *arguments: counted.append(1) or original(*arguments)
    )
    cfg = configuration(lm_data, "--criterion", CRITERIONS[name], base=base)
    task = tasks.setup_task(cfg.task)
    model, criterion = task.build_model(cfg.model), task.build_criterion(cfg.criterion)
    layer = model.decoder.output_projection
    assert layer.is_placeholder and not counted
    trainer = Trainer(cfg, task, model, criterion)
    trainer.get_train_iterator(epoch=1)
    trainer.lr_step(1)
    assert not layer.is_placeholder and len(counted) == 1
    trained = {
        id(parameter) for group in trainer.optimizer.param_groups for parameter in group["params"]
    }
    assert trained == {id(parameter) for parameter in model.parameters()}
    other = task.build_model(cfg.model)
    other.load_state_dict(model.state_dict(), model_cfg=cfg.model)
    Trainer(cfg, task, other, criterion).lr_step(1)
    assert len(counted) == 1
    assert other.decoder.output_projection.weight.equal(model.decoder.output_projection.weight)


def test_options_of_the_factorized_layer_that_do_not_fit(lm_data, capsys):
    def train(*options):
        trainer, _ = trainer_for(lm_data, "--criterion", "f2_softmax", *options, base=F2_LM)
        trainer.train_step(batches(trainer.cfg, trainer.task)[:1])

    for *options, words in (
        ("--f2-classes", 3, "no --f2-classes"),
        ("--adaptive-softmax-cutoff", "20,40", "found --adaptive-softmax-cutoff"),
        ("--arch", "transformer_lm", "--arch transformer_lm_f2"),
        ("--criterion", "agg", "--agg-rare-fraction", 0.3, "--criterion f2_softmax"),
    ):
        assert words in one_line(capsys, train, *options)


@pytest.mark.parametrize(
    ("base", "options"),
    [
        (UNIGRAM_LM, ("--unigram-bias", "fixed")),
        (UNIGRAM_MT, ("--unigram-bias", "learned", "--share-all-embeddings")),
    ],
    ids=["lm", "mt"],
)
def test_the_bias_is_that_of_the_target_side_and_logits_include_it(lm_data, mt_data, base, options):
    """Without W, the model predicts the training frequencies."""
    data = lm_data if base is UNIGRAM_LM else mt_data
    cfg, task, model, _ = build(data, *options, base=base)
    layer = model.decoder.output_projection
    counts = target_counts(data, task.target_dictionary)
    assert isinstance(layer, UnigramLinear) and torch.equal(layer.counts, counts)
    assert (layer.bias_shift is None) == ("fixed" in options)
    batch = batches(cfg, task)[0]
    features = model(**batch["net_input"], features_only=True)[0]
    torch.testing.assert_close(
        model(**batch["net_input"])[0], features @ layer.weight.T + log_unigram(counts)
    )
    with torch.no_grad():
        layer.weight.zero_()
        probabilities = model.get_normalized_probs(model(**batch["net_input"]), log_probs=False)
    expected = (counts + 1.0) / (counts.sum() + len(counts))
    torch.testing.assert_close(probabilities, expected.expand_as(probabilities))
