"""Without fairseq, each command that needs it says so in one line, and the others work."""

import sys

import pytest
import torch

from agg_fairseq.cli.main import FAIRSEQ, main


@pytest.fixture
def without_fairseq(monkeypatch):
    names = {name for name in sys.modules if name.partition(".")[0] in FAIRSEQ}
    for name in {*names, *FAIRSEQ}:
        monkeypatch.setitem(sys.modules, name, None)


@pytest.fixture
def place(tmp_path):
    """The files of a small language model; `{}` in a command stands for the folder."""
    (tmp_path / "data").mkdir()
    for split in ("train", "test"):
        (tmp_path / "data" / f"{split}.bin").write_bytes(b"\0\0")
        (tmp_path / "data" / f"{split}.idx").write_bytes(b"")
    (tmp_path / "data" / "dict.txt").write_text("a 3\nb 2\n")
    (tmp_path / "lm").mkdir()
    state = {
        "model": {"decoder.output_projection.weight": torch.randn(6, 4)},
        "cfg": {"task": {"_name": "language_modeling", "tokens_per_sample": 16}, "model": {"_name": "transformer_lm"}},
    }  # fmt: skip
    for updates, file in ((1, "checkpoint_1_1.pt"), (2, "checkpoint_best.pt")):
        torch.save(
            state | {"optimizer_history": [{"num_updates": updates}]}, tmp_path / "lm" / file
        )
    return tmp_path


NEED_FAIRSEQ = (
    "eval-lm {}/lm --data {}/data",
    "isotropy {}/lm --data {}/data",
    "report {}/lm --data {}/data --output {}/out.html",
    "plot projection {}/lm --data {}/data -o {}/out.png",
)
NEED_NONE = (
    "isotropy {}/lm",
    "average-checkpoints {}/lm/checkpoint_1_1.pt {}/lm/checkpoint_best.pt --output {}/out",
    "plot singular-values {}/lm -o {}/out.png",
    "user-dir",
)


def run(command, place):
    return main(command.replace("{}", str(place)).split())


def test_commands_that_need_fairseq(place, without_fairseq, capsys):
    before = set(place.rglob("*"))
    for command in NEED_FAIRSEQ:
        assert run(command, place) == 2, command
        said = capsys.readouterr().err
        name = " ".join(command.split()[: 2 if command.startswith("plot") else 1])
        assert said.startswith(f"agg-fairseq {name}: error: found no fairseq, ")
        assert said.count("\n") == 1
        assert not [path for path in set(place.rglob("*")) - before if path.is_file()], command


def test_commands_that_do_not(place, without_fairseq):
    for command in NEED_NONE:
        assert run(command, place) == 0, command
