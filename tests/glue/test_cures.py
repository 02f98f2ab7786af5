"""`reproduce.sh cures`: every model of the comparison is a configuration that fairseq takes, and the picture of it."""

import pytest

from agg_fairseq import plots
from scripts.experiments.corpora import WIKITEXT2_WORDS
from scripts.experiments.cures import cures
from scripts.experiments.experiment import Experiment, Measure, Method
from scripts.experiments.tables import points_of
from scripts.training.configuration import readable
from tests.configs import configured

MODELS = {model.name: model for model in cures(WIKITEXT2_WORDS, 20400, 300)[0].models()}


@pytest.mark.grid(6)
@pytest.mark.parametrize("name", MODELS)
def test_each_model_is_a_configuration(name):
    cfg = configured("cures", "mle", *map(readable, MODELS[name].overrides))
    assert cfg.optimization.max_update == 20400 == cfg.lr_scheduler.total_num_update
    assert cfg.task.tokens_per_sample == 64 and cfg.dataset.max_tokens == 1024


def test_the_models_differ():
    assert len({model.overrides for model in MODELS.values()}) == len(MODELS)


def test_a_point_has_the_seeds_that_were_trained():
    measures = [Measure(label, None, label) for label in ("I(W)", "PPL total", "PPL rare")]
    methods = [Method("mle", None), Method("agg", None), Method("bias", None)]
    experiment = Experiment("", methods, measures, trade_off=("PPL total", "PPL rare"))
    cells = [
        [[0.3, 0.4], [120.0, 122.0], [60.0, 62.0]],
        [[0.5, "not run"], [121.0, "not run"], [20.0, "not run"]],
        [["not run"] * 2] * 3,
    ]
    points = points_of(experiment, cells)
    assert points == {"mle": [[120.0, 60.0], [122.0, 62.0]], "agg": [[121.0, 20.0]]}
    panel = plots.trade_off(points, experiment.trade_off).axes[0]
    drawn = {text.get_text(): text.xy for text in panel.texts}
    assert drawn == {"mle": (121.0, 61.0), "agg": (121.0, 20.0)}
    assert (panel.get_xlabel(), panel.get_ylabel(), panel.get_yscale()) == ("PPL total", "PPL rare", "log")
