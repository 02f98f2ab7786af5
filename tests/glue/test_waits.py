"""What would make the host wait for a GPU in a training step of a criterion: seen on a CPU, by what it asks for."""

import pytest
import torch

import agg_fairseq.criterions  # noqa: F401 — registers
from agg_fairseq.f2 import FactorizedSoftmax
from agg_fairseq.modules import UnigramLinear
from benchmarks.output_layer_model import OutputLayerModel, OutputLayerTask, batch, criterion
from tests.waiting import WaitsForTheDevice, leave_out_what_only_a_cpu_reads

VOCABULARY, FEATURES = 64, 8
CASES = {
    "mle": ("mle", {}),
    "agg": ("agg", {"agg_window": 2}),
    "agg by share": ("agg", {"agg_window": 2, "agg_rare_fraction": 0.3}),
    "agg with the current batch": ("agg", {"agg_window": 2, "agg_count_current_batch": True}),
    "agps": ("agps", {"agps_rare_rank": 36}),
    "cosreg": ("cosreg", {}),
    "freeze_rare": ("freeze_rare", {"freeze_parts": "bc"}),
    "face": ("face", {}),
}


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch):
    """Without the checks that a CPU alone makes."""
    leave_out_what_only_a_cpu_reads(monkeypatch)


def steps(name, options, layer=None, updates=5):
    """The waits of each update: forward, backward, and what the criterion does as the optimizer takes its step."""
    task = OutputLayerTask(VOCABULARY)
    model, objective = OutputLayerModel(FEATURES, VOCABULARY, layer), criterion(name, task, **options)
    sample = batch(16, FEATURES, VOCABULARY, "cpu", steps=8)
    objective.eval()(model, sample)  # looks for the output layer of the model, once
    objective.train()
    found = []
    for update in range(updates):
        sample = batch(16, FEATURES, VOCABULARY, "cpu", steps=8)
        with WaitsForTheDevice() as mode:
            objective.start_update(update)
            objective(model, sample)[0].backward()
            objective.on_optimizer_step()
        found.append(mode.waits)
    return found


@pytest.mark.parametrize("case", CASES)
def test_a_training_step_waits_once(case):
    """For the number of positions that are common, rare and padding; `agg` also for the tokens of the update before,
    which it then sorts on the host."""
    expected = [["tolist"] for _ in range(5)]
    if case.startswith("agg"):
        expected = [[*["cpu", "aten.nonzero"] * bool(update), "tolist"] for update in range(5)]
    assert steps(*CASES[case]) == expected


def test_a_log_unigram_bias_waits_for_no_device():
    layer = UnigramLinear(torch.nn.Parameter(torch.randn(VOCABULARY, FEATURES)), torch.arange(VOCABULARY))
    assert steps("mle", {}, layer) == [["tolist"]] * 5


@pytest.mark.parametrize("options", [{}, {"label_smoothing": 0.1}])
def test_f2_softmax_waits_once(options):
    """For the number of positions in each class: which products there are to form depends on it."""
    classes = torch.arange(VOCABULARY) % 4
    layer = FactorizedSoftmax(classes, FEATURES)
    found = steps("f2_softmax", options, layer)
    assert found == [["tolist"]] * 5
