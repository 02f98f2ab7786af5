"""scripts/experiments: the models of all entries are configurations that fairseq takes."""

import itertools
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from scripts.experiments.entries import EXPERIMENTS, OURS
from scripts.experiments.experiment import Workspace
from scripts.experiments.training import overrides_of
from scripts.training.configuration import as_written, composed, locate, quoted, readable, with_plugin


def overrides(model, scale):
    return [readable(override) for override in overrides_of(Workspace(scale, Path("/runs")), model)]


def has_one_threshold(criterion):
    """A share of the vocabulary and an α of its own exclude each other: the criterion would refuse both."""
    return not criterion.get("agg_rare_fraction") or criterion.get("agg_alpha") is None


@pytest.fixture
def text(tmp_path):
    for split in ("train", "valid", "test"):
        for name in (f"wiki.{split}.tokens", f"{split}.en", f"{split}.de"):
            (tmp_path / name).write_text("a\n")
    return tmp_path


@pytest.mark.slow
def test_models_of_our_own_experiments(text):
    for key, entry in OURS.items():
        models = [model for experiment in entry.build(data=text, updates=50) for model in experiment.models()]
        assert len(models) >= 2 and len({model.overrides for model in models}) == len({model.name for model in models})
        for model in models:
            given = [*overrides(model, "tiny"), f"++task.data={text}", "++checkpoint.save_dir=/run"]
            cfg = composed(file := locate(f"configs/{model.config}"), with_plugin(file, given))
            assert cfg.optimization.max_update == (8 if model.start else 50) and cfg.common.cpu, (key, model.name)
            assert has_one_threshold(cfg.criterion), (key, model.name)


@pytest.mark.slow
def test_models_of_the_papers_that_override_their_configuration():
    models = {model.name: model for experiment in EXPERIMENTS.values() for model in experiment.models()}
    for model in models.values():
        for scale in model.scales if model.overrides or model.scaled else ():
            cfg = as_written(locate(f"configs/{model.config}"), overrides(model, scale))
            assert cfg.common.get("cpu", False) == (scale == "tiny"), (model.name, scale)
            assert has_one_threshold(cfg.criterion), (model.name, scale)


def test_the_demo_trains_the_files_of_configs_demo(tmp_path):
    """For more and smaller updates than the files say."""
    (experiment,) = OURS["demo"].build()
    given = [f"task.data={tmp_path}", "checkpoint.save_dir=/run"]
    size = ["++dataset.required_batch_size_multiple=8", "optimization.max_update=1000", "dataset.max_tokens=512"]
    for model, file in zip(experiment.models()[:2], ("mle", "agg"), strict=True):
        trained = composed(
            path := locate(f"configs/{model.config}"), with_plugin(path, [*overrides(model, "tiny"), *given])
        )
        path = locate(f"configs/demo/{file}")
        written = composed(path, with_plugin(path, [*given, *size]))
        for section in ("criterion", "model", "optimizer", "dataset", "optimization", "lr_scheduler"):
            assert written[section] == trained[section]


def test_any_text_can_be_quoted():
    """Backslashes, quotation marks, commas and spaces in every order, read by hydra's own parser."""
    parser = OverridesParser.create()
    for length in range(5):
        for characters in itertools.product("a\\', ", repeat=length):
            text = "".join(characters)
            assert parser.parse_override(f"key={quoted(text)}").value() == text
