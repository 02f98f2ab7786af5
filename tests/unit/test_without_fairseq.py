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
    """The files of a small language model and of a small translation model; `{}` in a command stands for the folder."""
    data = tmp_path / "data"
    data.mkdir()
    for split in ("train", "test", "train.en-de.en", "train.en-de.de"):
        (data / f"{split}.bin").write_bytes(b"\0\0")
        (data / f"{split}.idx").write_bytes(b"")
    for name in ("dict.txt", "dict.en.txt", "dict.de.txt"):
        (data / name).write_text("a 3\nb 2\n")
    tasks = {
        "lm": {"_name": "language_modeling", "tokens_per_sample": 16},
        "mt": {"_name": "translation", "source_lang": "en", "target_lang": "de"},
    }
    for name, task in tasks.items():
        (tmp_path / name).mkdir()
        for updates, file in ((1, "checkpoint_1_1.pt"), (2, "checkpoint_best.pt")):
            state = {"model": {"decoder.output_projection.weight": torch.randn(6, 4)}}
            options = {"cfg": {"task": task, "model": {"_name": "transformer"}}}
            torch.save({**state, **options, "optimizer_history": [{"num_updates": updates}]}, tmp_path / name / file)
    (tmp_path / "pairs").write_text("a\tb\t1\n")
    (tmp_path / "links").write_text("0-0\n")
    (tmp_path / "texts").write_text('{"prefix": "a", "continuation": "a b", "reference": "b a"}\n' * 3)
    return tmp_path


NEED_FAIRSEQ = (
    "eval-lm {}/lm --data {}/data",
    "generate-lm {}/lm --data {}/data --output {}/out",
    "isotropy {}/lm --data {}/data",
    "neighbors {}/lm --data {}/data --words a",
    "word-similarity {}/lm --data {}/data --datasets {}/pairs",
    "align {}/data --output {}/out",
    "align-sim {}/mt --data {}/data --alignments {}/links",
    "convert-to-f2 {}/lm --data {}/data --output {}/out",
    "report {}/lm --data {}/data --output {}/out.html",
    "plot projection {}/lm --data {}/data -o {}/out.png",
    "plot isotropy {}/lm --data {}/data -o {}/out.png",
    "plot similarity {}/lm --data {}/data --words a -o {}/out.png",
    "plot frequencies {}/data -o {}/out.png",
    "text-metrics {}/texts --data {}/data",
)
NEED_NONE = (
    "isotropy {}/lm {}/mt",
    "average-checkpoints {}/lm/checkpoint_1_1.pt {}/lm/checkpoint_best.pt --output {}/out",
    "plot singular-values {}/lm -o {}/out.png",
    "text-metrics {}/texts",
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
        assert said.startswith(f"agg-fairseq {name}: error: found no fairseq, ") and said.count("\n") == 1
        assert not [path for path in set(place.rglob("*")) - before if path.is_file()], command


def test_commands_that_do_not(place, without_fairseq):
    for command in NEED_NONE:
        assert run(command, place) == 0, command
