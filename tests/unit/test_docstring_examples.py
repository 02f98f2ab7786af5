"""The examples in docstrings print what they say, and the training loop of the README runs as it is pasted."""

import doctest
import importlib
import re
from pathlib import Path

import pytest
import torch


@pytest.mark.parametrize(
    "name",
    [
        "functional.factorized_softmax",
        "functional.frequency_classes",
        "functional.gated_cross_entropy",
        "functional.log_unigram",
        "modules.factorized_softmax",
        "modules.token_counter",
        "modules.unigram_linear",
        "optim.coupled_adam",
        "optim.nt_asgd",
    ],
)
def test_examples(name):
    module = importlib.import_module(f"agg_fairseq.{name}")
    result = doctest.testmod(module)
    assert result.attempted > 0 and result.failed == 0


def test_the_training_loop_of_the_readme():
    """Plain cross-entropy before the diff, AGG after it."""
    readme = (Path(__file__).resolve().parents[2] / "README.md").read_text()
    [diff] = [text for text in re.findall(r"```diff\n(.*?)```", readme, re.DOTALL) if "TokenCounter" in text]
    weights = []
    for sign in "+-":
        torch.manual_seed(1)
        embedding = torch.nn.Embedding(40, 8)
        tokens = torch.multinomial(1 / torch.arange(1.0, 41), 6 * 4 * 10, replacement=True).view(6, 4, 10)
        names = {
            "F": torch.nn.functional,
            "model": embedding,
            "embedding": embedding,
            "batches": [(batch[:, :-1], batch[:, 1:]) for batch in tokens],
            "optimizer": torch.optim.SGD(embedding.parameters(), lr=0.1),
        }
        exec("\n".join(line[1:] for line in diff.splitlines() if not line.startswith(sign)), names)
        weights.append(embedding.weight.detach())
    assert names["counter"].updates == len(tokens) and names["rare"].sum() == 2
    assert not weights[0].equal(weights[1])
    torch.testing.assert_close(*weights, rtol=0.1, atol=0.1)
