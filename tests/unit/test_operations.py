"""How many operations a loss dispatches: on a GPU, each takes the host as long as a small kernel."""

from collections import Counter

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from agg_fairseq.f2 import TokenClasses, factorized_cross_entropy
from agg_fairseq.functional import Gates, gated_likelihood, softmax_layer
from agg_fairseq.objective import AggObjective, Objective
from tests.pretend_cuda import CUDA, PretendCuda, there

V, D, N = 64, 8, 40


class Operations(TorchDispatchMode):
    """Counts what is dispatched, but for views, in which nothing is computed."""

    VIEWS = {"view", "slice", "t", "unsqueeze", "squeeze", "select", "unbind", "expand", "alias"}

    def __enter__(self):
        self.found = Counter()
        return super().__enter__()

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        name = function.overloadpacket.__name__
        self.found[name] += name not in self.VIEWS | {"detach"}
        return function(*arguments, **(options or {}))


def operations(step, chunks, monkeypatch):
    numbers = []
    for number in (1, chunks):
        monkeypatch.setattr(softmax_layer, "CHUNK_ELEMENTS", V * N // number)
        step()
        with Operations() as counted:
            step()
        numbers.append(counted.found.total())
    per_chunk = (numbers[1] - numbers[0]) / (chunks - 1)
    return per_chunk, numbers[0] - per_chunk


@pytest.mark.parametrize(
    ("kind", "of_chunk", "outside"),
    [("mle", 13, 23), ("mle with padding", 15, 25), ("agg", 18, 87), ("gates", 16, 33)],
)
def test_operations_of_a_step(kind, of_chunk, outside, monkeypatch):
    """Forward and backward of a loss that is divided by its targets: the three products and the
    softmax of each chunk, and what is ordered, counted and summed up once."""
    h, w = torch.randn(4, N // 4, D, requires_grad=True), torch.randn(V, D, requires_grad=True)
    y = torch.arange(N).view(4, -1)
    if "padding" in kind:
        y[:, -1] = -100
    objective = AggObjective(V, rare_fraction=0.3, window=9) if kind == "agg" else Objective(V)
    gates = Gates(torch.arange(V) > 30, torch.rand(V), torch.rand(V))

    def step():
        h.grad = w.grad = None
        if kind == "gates":
            loss = gated_likelihood(h, w, y, gates=gates).loss
        else:
            loss = objective(h, w, y).loss
        (loss / N).backward()
        objective.commit_update()

    found = operations(step, 5, monkeypatch)
    assert found[0] <= of_chunk and found[1] <= outside, found


def test_f2_with_label_smoothing_takes_as_many_operations_for_any_number_of_classes():
    """On a GPU; without label smoothing, each product is that of a group of classes."""
    numbers = []
    for size in (2, 16):
        classes = TokenClasses.of(torch.arange(V) // (V // size))
        inputs = torch.randn(N, D), torch.randn(V, D), torch.randn(size, D), torch.arange(N)
        with PretendCuda(), Operations() as counted:
            factorized_cross_entropy(*there((*inputs, classes), CUDA), label_smoothing=0.1)
        numbers.append(counted.found.total())
    assert numbers[0] == numbers[1] < 80, numbers
