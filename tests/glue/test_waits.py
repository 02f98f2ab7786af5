"""How often the host waits for a GPU in a training step of a criterion."""

import pytest
import torch

import agg_fairseq.fairseq_plugin.criterions  # noqa: F401 — registers
from agg_fairseq.f2 import FactorizedSoftmax
from agg_fairseq.modules import UnigramLinear
from benchmarks.output_layer_model import OutputLayerModel, OutputLayerTask, batch, criterion
from tests.pretend_cuda import CUDA, PretendCuda

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


def steps(name, options, layer=None, updates=5):
    """The waits of each update: forward, backward, and what the criterion does as the optimizer
    takes its step."""
    task, found = OutputLayerTask(VOCABULARY), []
    model = OutputLayerModel(FEATURES, VOCABULARY, layer)
    objective = criterion(name, task, **options)
    with PretendCuda() as device:
        model.to(CUDA)
        objective.to(CUDA)
        samples = [batch(16, FEATURES, VOCABULARY, CUDA, steps=8) for _ in range(updates + 1)]
        objective.eval()(model, samples[-1])  # looks for the output layer of the model, once
        objective.train()
        for update in range(updates):
            before = device.waits
            objective.start_update(update)
            objective(model, samples[update])[0].backward()
            objective.on_optimizer_step()
            found.append(device.waits - before)
    return found


@pytest.mark.parametrize("case", CASES)
def test_a_training_step_waits_once(case):
    """Waits for the number of positions that are common, rare and padding."""
    assert steps(*CASES[case]) == [1] * 5


def test_other_output_layers_wait_once():
    """F²-Softmax waits for the number of positions in each class."""
    tokens = torch.arange(VOCABULARY)
    weight = torch.nn.Parameter(torch.randn(VOCABULARY, FEATURES))
    assert steps("mle", {}, UnigramLinear(weight, tokens)) == [1] * 5
    layer = FactorizedSoftmax(FEATURES, tokens % 4)
    assert steps("f2_softmax", {"label_smoothing": 0.1}, layer) == [1] * 5
