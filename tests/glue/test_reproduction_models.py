"""scripts/experiments: what the entries override, as scripts/train.sh takes it; the files have tests of their own."""

import itertools
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from agg_fairseq.errors import UserError
from scripts.experiments.entries import EXPERIMENTS, OURS, Options
from scripts.experiments.experiment import SCALES, Workspace
from scripts.experiments.training import overrides_of
from scripts.training.configuration import (
    composed,
    locate,
    overrides_of_options,
    quoted,
    readable,
    with_plugin,
)

ALL = {model.name: model for experiment in EXPERIMENTS.values() for model in experiment.models()}
MODELS = {name: model for name, model in ALL.items() if model.overrides or model.scaled}


def configuration(model, scale, folder, *overrides):
    """As the training gets it."""
    given = [*overrides_of(Workspace(scale, Path("/runs")), model), *overrides]
    given += [f"task.data={folder}", "checkpoint.save_dir=/run"]
    return composed(locate(f"configs/{model.config}"), with_plugin([readable(override) for override in given]))


@pytest.mark.grid(3)
@pytest.mark.parametrize("name", MODELS)
def test_composes_at_every_scale(name, tmp_path):
    model = MODELS[name]
    for scale in [scale for scale in SCALES if scale in model.scales]:
        cfg = configuration(model, scale, tmp_path)
        assert cfg.common.cpu == (scale == "tiny")
        check_rare_group(cfg.criterion)


@pytest.fixture
def text(tmp_path):
    """A folder of all files that our own experiments ask for."""
    names = [f"wiki.{split}.tokens" for split in ("train", "valid", "test")]
    for name in [*names, *(f"{split}.{one}" for split in ("train", "valid", "test") for one in ("en", "de"))]:
        (tmp_path / name).write_text("a\n")
    return tmp_path


@pytest.mark.grid(1)
@pytest.mark.parametrize("key", OURS)
def test_models_of_our_own_experiments_compose(key, text):
    options = Options(**{"corpus": "wikitext", **OURS[key].defaults, "data": text, "updates": 50, "dimension": 32})
    interval, dimension = {"multi30k": (2, 32), "cures": (1000, 64)}.get(key, (5, 32))
    models = [model for experiment in OURS[key].build(options) for model in experiment.models()]
    assert len(models) >= 2
    for model in models:
        cfg = configuration(model, "tiny", text)
        assert cfg.optimization.max_update == 50 and cfg.checkpoint.save_interval_updates == interval and cfg.common.cpu
        assert cfg.model.decoder_embed_dim == dimension
        assert cfg.model.decoder_ffn_embed_dim in (2 * dimension, 4 * dimension)
        check_rare_group(cfg.criterion)


def test_the_demo_trains_the_files_of_configs_demo(tmp_path):
    """For fewer updates than the files say. The second file is the example of a configuration in the README."""
    (experiment,) = OURS["demo"].build(Options())
    for model, file in zip(experiment.models(), ("mle", "agg"), strict=True):
        trained = configuration(model, "tiny", tmp_path)
        given = [f"task.data={tmp_path}", "checkpoint.save_dir=/run", "++dataset.required_batch_size_multiple=8"]
        given.append("optimization.max_update=400")
        written = composed(locate(f"configs/demo/{file}"), with_plugin(given))
        assert written.criterion == trained.criterion and written.model == trained.model
        assert written.optimizer == trained.optimizer and written.dataset == trained.dataset
        assert written.optimization == trained.optimization and written.lr_scheduler == trained.lr_scheduler


def test_options_of_fairseq_train_as_overrides():
    words = "--criterion agg --agg-rare-fraction 0.3 --lr 0.01 --fp16 --dropout 0 --weight-decay 0 --save-interval 2"
    assert set(overrides_of_options(words.split())) == {
        "criterion._name=agg", "criterion.agg_rare_fraction=0.3", "optimization.lr=[0.01]", "common.fp16=true",
        "model.dropout=0.0", "optimizer.weight_decay=0.0", "checkpoint.save_interval=2",
    }  # fmt: skip
    assert overrides_of_options(["--criterion", "mle"]) == ()
    with pytest.raises(UserError, match="expected options of fairseq-train .unrecognized arguments: --nothing"):
        overrides_of_options(["--criterion", "mle", "--nothing"])


def check_rare_group(criterion):
    """A share of the vocabulary and an α of its own exclude each other: the criterion would refuse both."""
    if criterion._name == "agg" and criterion.get("agg_rare_fraction"):
        assert criterion.agg_alpha == 0.03


def test_any_text_can_be_quoted():
    """Backslashes, quotation marks, commas and spaces in every order, read by hydra's own parser."""
    parser = OverridesParser.create()
    for length in range(5):
        for characters in itertools.product("a\\', ", repeat=length):
            text = "".join(characters)
            assert parser.parse_override(f"key={quoted(text)}").value() == text
