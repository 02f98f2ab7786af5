"""What the benchmarks of commands compare gives the same numbers."""

import pytest

from benchmarks import commands


@pytest.mark.slow
@pytest.mark.parametrize("row", commands.ROWS)
def test_a_command_agrees_with_its_peer(row):
    commands.main(["--small", row])
