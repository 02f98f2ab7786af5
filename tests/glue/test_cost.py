"""What a training takes, estimated from its configuration."""

import pytest

from scripts.experiments.cost import cost_of, described
from scripts.experiments.entries import EXPERIMENTS, OURS
from scripts.experiments.experiment import Workspace

MODELS = {model.name: model for experiment in EXPERIMENTS.values() for model in experiment.models()}


@pytest.mark.parametrize(
    ("name", "millions", "billions", "hours", "gigabytes"),
    [  # as in docs/reproduction.md; for 347 million, Table 12 says 358, which its dimensions do not make
        ("agg-agg", 347, 1.64, 19.0, 12.5),
        ("agps-agps", 156, 1.64, 8.5, 5.6),
        ("f2-mle", 68, 1.64, 3.7, 2.5),
        ("agg-big-agg", 218, 12.45, 90.4, 18.3),
        ("cosreg-mle", 34, 1.57, 1.7, 0.8),
    ],
)
def test_cost_at_the_published_scale(name, millions, billions, hours, gigabytes, tmp_path):
    """6 operations per parameter and token at 50 TFLOP/s; 12 bytes per parameter and checkpoint."""
    cost = cost_of(Workspace("paper", tmp_path), MODELS[name], 1)
    assert round(cost.parameters / 1e6) == millions and round(cost.tokens / 1e9, 2) == billions
    assert round(cost.gpu_hours, 1) == hours == round(cost.parameters * cost.tokens * 6 / 50e12 / 3600, 1)
    assert round(cost.disk / 1e9, 1) == gigabytes
    overrides = ("optimization.max_update=10", "optimization.update_freq=[3]")  # of the command line
    cost = cost_of(Workspace("paper", tmp_path, overrides=overrides), MODELS["agg-agg"], 2)
    assert (cost.updates, cost.batches.tokens) == (10, 2 * 3 * 4096)


def test_sum_of_a_table_without_what_is_trained(tmp_path):
    *lines, total = described("agg-3", EXPERIMENTS["agg-3"], [Workspace("paper", tmp_path)], 8)
    assert [line.partition(":")[0] for line in lines] == ["agg-mle", "agg-agg"]
    assert all("32,768 tokens per update = 8 x 4,096 x 1, 50,000 updates" in line for line in lines)
    assert total.startswith("agg-3: 2 trainings, 38 GPU hours, 4.7 hours on 8 GPUs; 25 GB of checkpoints, 2.0 GB of da")
    (tmp_path / "agg-mle").mkdir()
    (tmp_path / "agg-mle" / "done").touch()
    *lines, _ = described("agg-3", EXPERIMENTS["agg-3"], [Workspace("paper", tmp_path)], 8)
    assert [line.partition(":")[0] for line in lines] == ["agg-agg"]


def test_a_model_of_the_first_seed_alone_is_not_counted_for_the_others(tmp_path):
    (tmp_path / "train.en").touch()
    (experiment,) = OURS["multi30k"].build(data=tmp_path, updates=20)
    workspaces = [Workspace("tiny", tmp_path, seed=seed, models=f"seed-{seed}") for seed in (1, 2)]
    *lines, total = described("multi30k", experiment, workspaces, 8)
    names = [line.partition(":")[0] for line in lines]
    assert "seed-1/f2" in names and "seed-2/mle" in names and "seed-2/f2" not in names
    assert total == "multi30k: 11 trainings on a CPU" and "4,096 tokens per update = 1 x 4,096 x 1" in lines[0]
