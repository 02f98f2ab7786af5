"""Without fairseq, each command that needs it says so in one line, and the others work."""

import sys

import pytest
import torch

from agg_fairseq.cli.main import FAIRSEQ_PACKAGES, main


@pytest.fixture
def no_fairseq(monkeypatch):
    names = {name for name in sys.modules if name.partition(".")[0] in FAIRSEQ_PACKAGES}
    for name in [name for name in sys.modules if name.startswith("agg_fairseq.fairseq_plugin")]:
        monkeypatch.delitem(sys.modules, name)  # as in a process of its own
    for name in {*names, *FAIRSEQ_PACKAGES}:
        monkeypatch.setitem(sys.modules, name, None)


@pytest.fixture
def place(tmp_path):
    """The files of a small language model; `{}` in a command stands for the folder."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.bin").touch()
    (tmp_path / "data" / "dict.txt").write_text("a 3\nb 2\n")
    (tmp_path / "lm").mkdir()
    state = {
        "model": {"decoder.output_projection.weight": torch.randn(6, 4)},
        "cfg": {"task": {"_name": "language_modeling"}, "model": {"_name": "transformer_lm"}},
    }
    for updates, name in ((1, "checkpoint_1_1"), (2, "checkpoint_best")):
        state["optimizer_history"] = [{"num_updates": updates}]
        torch.save(state, tmp_path / "lm" / f"{name}.pt")
    return tmp_path


def run(command, place):
    return main(command.replace("{}", str(place)).split())


@pytest.mark.parametrize(
    "command",
    [
        "eval-lm {}/lm --data {}/data",
        "report {}/lm --data {}/data --output {}/out.html",
        "plot projection {}/lm --data {}/data -o {}/out.png",
    ],
)
def test_commands_that_need_fairseq(command, place, no_fairseq, capsys):
    assert run(command, place) == 2
    said = capsys.readouterr().err
    name = command.partition(" {}")[0]
    assert said.startswith(f"agg-fairseq {name}: error: found no fairseq, ")
    assert said.count("\n") == 1 and not list(place.glob("out*"))
