"""The examples in docstrings print what they say, and the programs of docs/method.md run."""

import doctest
import importlib
import re

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import grad
from torch.testing import assert_close

from agg_fairseq.functional import Gates, naive_gated_cross_entropy
from tests.conftest import ROOT

EXAMPLES = sorted(
    path
    for path in (ROOT / "agg_fairseq").rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_in_docstrings(path):
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    result = doctest.testmod(importlib.import_module(module))
    assert result.attempted > 0 and result.failed == 0


def run_program(word):
    """Runs the program of docs/method.md that has a word, as it is pasted: its names."""
    page = (ROOT / "docs" / "method.md").read_text(encoding="utf-8")
    [program] = [
        text for text in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if word in text
    ]
    exec(program, names := {})
    return names


def test_the_training_loop_of_the_page():
    torch.manual_seed(1)
    names = run_program("AggGating")
    gating = names["gating"]
    assert gating.counter.updates == 20
    assert 200 < gating.gates(None).rare.sum() < 400
    assert names["loss"].isfinite()


def test_the_gates_over_a_fused_loss_of_the_page():
    def fused(features, weight, target):
        return F.cross_entropy(features @ weight.t(), target, reduction="none")

    h, w = (torch.randn(size, 4).double().requires_grad_() for size in (9, 7))
    y, gates = torch.arange(9) % 7, Gates(torch.arange(7) > 3, *torch.rand(2, 7).double())
    loss = run_program("fused")["gated"](fused, h, w, y, gates)
    expected = naive_gated_cross_entropy(h, w, y, gates=gates)
    assert_close(loss, expected)
    assert_close(grad(loss, (h, w)), grad(expected, (h, w)))
