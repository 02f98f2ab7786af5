"""What the benchmarks of commands compare gives the same numbers; those of training run."""

import pytest

from benchmarks import commands, f2_softmax


@pytest.mark.slow
@pytest.mark.parametrize("row", commands.ROWS)
def test_a_command_agrees_with_its_peer(row):
    commands.main(["--small", row])


def test_every_variant_of_the_factorized_softmax_trains():
    steps, trained = f2_softmax.training((100, 512, 8), "float32", "cpu")
    for step in steps.values():
        step()
    assert trained[1].grad.any()
