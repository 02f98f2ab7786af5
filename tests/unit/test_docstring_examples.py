"""The examples in docstrings print what they say, and the training loop of docs/method.md runs."""

import doctest
import importlib
import re

import pytest
import torch

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


def test_the_training_loop_of_the_page():
    page = (ROOT / "docs" / "method.md").read_text()
    [program] = [
        text for text in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "Objective" in text
    ]
    names = {}
    torch.manual_seed(1)
    exec(program, names)
    objective = names["objective"]
    assert objective.counter.updates == 20
    assert 200 < objective.gates(None).rare.sum() < 400
    assert names["loss"].isfinite()
