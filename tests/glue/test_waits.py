"""What would make the host wait for a GPU in a training step of a criterion: seen on a CPU, by what
it asks for."""

import sys

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

import agg_fairseq.criterions  # noqa: F401 — registers
from agg_fairseq.f2 import FactorizedSoftmax
from agg_fairseq.modules import TokenCounter, UnigramLinear
from benchmarks.output_layer_model import OutputLayerModel, OutputLayerTask, batch, criterion

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


class WaitsForTheDevice(TorchDispatchMode):
    """Collects the operations whose result the host needs, so that it would wait for a GPU."""

    ALWAYS = (
        *(
            "aten._local_scalar_dense",
            "aten.nonzero",
            "aten.masked_select",
            "aten._unique2",
            "aten.bincount",
        ),
        # a tensor made of numbers of the host: the copy to the device waits for it
        "aten.lift_fresh",
    )
    # methods that read a tensor's memory on a CPU, without an operation
    READING = ("tolist", "numpy", "cpu")

    def __init__(self):
        super().__init__()
        self.waits = []
        self.methods = pytest.MonkeyPatch()

    def __enter__(self):
        for name in self.READING:
            self.methods.setattr(
                torch.Tensor, name, self._recorded(name, getattr(torch.Tensor, name))
            )
        return super().__enter__()

    def __exit__(self, *error):
        self.methods.undo()
        return super().__exit__(*error)

    def _recorded(self, name, method):
        def recorded(*arguments, **keywords):
            self.waits.append(name)
            return method(*arguments, **keywords)

        return recorded

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        name = str(function.overloadpacket)
        by_mask = name.startswith("aten.index") and any(
            isinstance(t, torch.Tensor) and t.dtype == torch.bool
            for part in arguments[1:2]
            for t in (part if isinstance(part, (list, tuple)) else [part])
        )
        if name in self.ALWAYS or by_mask:
            self.waits.append(name)
        return function(*arguments, **(keywords or {}))


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch):
    """Without the look at the loss's gradient and at the targets, which the host does not read on a
    GPU. What the counter does to the tokens of the update before, which have come to the host, is
    no wait."""
    monkeypatch.setattr("agg_fairseq.functional.early_gradients.is_one", lambda scale: False)

    def on_host(function):
        def without_modes(*arguments):
            with _disable_current_modes():
                return function(*arguments)

        return without_modes

    store = on_host(TokenCounter._store_arrived)
    monkeypatch.setattr(TokenCounter, "_store_arrived", store)
    for name in ("functional.gated_cross_entropy", "f2.token_classes"):
        module = sys.modules[f"agg_fairseq.{name}"]
        monkeypatch.setattr(module, "known_targets", on_host(module.known_targets))


def steps(name, options, layer=None, updates=5):
    """The waits of each update: forward, backward, and what the criterion does as the optimizer
    takes its step."""
    task = OutputLayerTask(VOCABULARY)
    model, objective = (
        OutputLayerModel(FEATURES, VOCABULARY, layer),
        criterion(name, task, **options),
    )
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
    """For the number of positions that are common, rare and padding."""
    assert steps(*CASES[case]) == [["tolist"]] * 5


def test_a_log_unigram_bias_waits_for_no_device():
    layer = UnigramLinear(
        torch.nn.Parameter(torch.randn(VOCABULARY, FEATURES)), torch.arange(VOCABULARY)
    )
    assert steps("mle", {}, layer) == [["tolist"]] * 5


@pytest.mark.parametrize("options", [{}, {"label_smoothing": 0.1}])
def test_f2_softmax_waits_once(options):
    """For the number of positions in each class: which products there are to form depends on it."""
    classes = torch.arange(VOCABULARY) % 4
    layer = FactorizedSoftmax(classes, FEATURES)
    found = steps("f2_softmax", options, layer)
    assert found == [["tolist"]] * 5
