"""The examples in docstrings print what they say."""

import doctest
import importlib

import pytest


@pytest.mark.parametrize(
    "name",
    [
        "functional.factorized_softmax",
        "functional.frequency_classes",
        "functional.gated_cross_entropy",
        "modules.factorized_softmax",
        "modules.token_counter",
    ],
)
def test_examples(name):
    module = importlib.import_module(f"agg_fairseq.{name}")
    result = doctest.testmod(module)
    assert result.attempted > 0 and result.failed == 0
