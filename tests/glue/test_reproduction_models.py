"""scripts/reproduction: what the tables override, as scripts/train.sh takes it; the files have tests of their own."""

from pathlib import Path

import pytest

from scripts.reproduction.bench import Bench
from scripts.reproduction.catalogue import EXPERIMENTS
from scripts.reproduction.experiment import SCALES
from scripts.reproduction.training import settings_of
from scripts.training.configuration import composed, locate, readable, with_plugin

ALL = {model.name: model for experiment in EXPERIMENTS.values() for model in experiment.models()}
MODELS = {name: model for name, model in ALL.items() if model.overrides or model.scaled}


@pytest.mark.parametrize("name", MODELS)
def test_composes_at_every_scale(name, tmp_path):
    model = MODELS[name]
    (tmp_path / "data-bin").mkdir()
    (tmp_path / "manifest.json").write_text("{}")
    for scale in [scale for scale in SCALES if scale in model.scales]:
        bench = Bench(scale, Path("/runs"), data=tmp_path, dry=True)
        config, *overrides = settings_of(bench, model)
        given = [readable(override) for override in [*overrides, "checkpoint.save_dir=/run"]]
        cfg = composed(locate(config), with_plugin(given))
        assert cfg.common.cpu == (scale == "tiny")
        check_rare_group(cfg.criterion)


def check_rare_group(criterion):
    """A share of the vocabulary and an α of its own exclude each other: the criterion would refuse both."""
    if criterion._name == "agg" and criterion.get("agg_rare_fraction"):
        assert criterion.agg_alpha == 0.03
