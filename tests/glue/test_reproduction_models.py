"""scripts/reproduction: what the tables override, as scripts/train.sh takes it; the files have tests of their own."""

import itertools
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from scripts.reproduction.bench import Bench
from scripts.reproduction.catalogue import EXPERIMENTS
from scripts.reproduction.experiment import SCALES
from scripts.reproduction.training import overrides_of
from scripts.training.configuration import composed, locate, quoted, readable, with_plugin

ALL = {model.name: model for experiment in EXPERIMENTS.values() for model in experiment.models()}
MODELS = {name: model for name, model in ALL.items() if model.overrides or model.scaled}


@pytest.mark.parametrize("name", MODELS)
def test_composes_at_every_scale(name, tmp_path):
    model = MODELS[name]
    for scale in [scale for scale in SCALES if scale in model.scales]:
        overrides = [
            *overrides_of(Bench(scale, Path("/runs")), model),
            f"task.data={tmp_path}",
            "checkpoint.save_dir=/run",
        ]
        cfg = composed(locate(f"configs/{model.config}"), with_plugin([readable(override) for override in overrides]))
        assert cfg.common.cpu == (scale == "tiny")
        check_rare_group(cfg.criterion)


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
