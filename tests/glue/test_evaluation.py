"""The evaluations as they are used from a notebook: functions of opened checkpoints that return a Result."""

import inspect
import json
import logging
import os
import re
import shutil
import typing
from argparse import Namespace
from pathlib import Path

import pytest
import torch

import agg_fairseq.evaluation as evaluation
from agg_fairseq.checkpoints.averaging import average_checkpoints
from agg_fairseq.checkpoints.fairseq_checkpoint import Checkpoint, open_checkpoints
from agg_fairseq.cli.main import main
from agg_fairseq.data.subwords import Tokenizer
from agg_fairseq.errors import UserError
from agg_fairseq.evaluation import (
    Cache,
    Result,
    align_sim,
    generate_texts,
    isotropy,
    neighbors,
    perplexity,
    text_metrics,
    word_similarity,
)
from agg_fairseq.evaluation.perplexity import COMPARED
from agg_fairseq.f2.conversion import convert_to_f2
from agg_fairseq.models.from_checkpoint import build_model
from tests.conftest import ROOT
from tests.glue.test_align_commands import links, model  # noqa: F401 — fixtures

PAIRS = "w0\tw1\t3\nw2\tw3\t1\nw4\tw5\t2\n"
TEXTS = {"prefix_length": 5, "length": 9, "device": "cpu"}


@pytest.fixture
def runs(lm_runs):
    return open_checkpoints([lm_runs / name / "checkpoint_last.pt" for name in ("mle", "agg")])


@pytest.fixture
def pairs(tmp_path):
    path = tmp_path / "pairs.txt"
    path.write_text(PAIRS)
    return path


def shown(result, row):
    """The formatted cells of a row."""
    return next(cells for names, cells in result.formatted() if names == (row if isinstance(row, tuple) else (row,)))


def test_isotropy(runs, lm_data):
    alone, grouped = isotropy(runs), isotropy(runs, lm_data)
    assert alone["agg"]["I(W) total"] == grouped["agg"]["I(W) total"]
    assert alone["agg"]["I(W) rare"] is None and grouped["agg"]["I(W) rare"] > 0
    assert [column.digits for column in alone.columns] == [3] * 21
    assert alone.details["checkpoints"][1]["matrix"] == runs["agg"].output_embedding.description


def test_neighbors(runs, lm_data):
    result = neighbors(runs, lm_data, words=["w3", "w5"], topk=2)
    assert list(result.rows) == [("w3", "mle"), ("w3", "agg"), ("w5", "mle"), ("w5", "agg")]
    first = result.details["words"][0]["checkpoints"][1]["neighbors"][0]
    assert result["w3", "agg"]["1"].startswith(f"{first['readable']}") and result.labels == ("", "checkpoint")
    assert result.table().splitlines()[2].count("|") == 5


def test_two_words_of_one_token(runs, lm_data, monkeypatch):
    """As sentencepiece makes of a ligature and its letters: two rows each, none of which is lost."""
    splitter = Tokenizer.splitter

    def normalizing(self, dictionary):
        found = splitter(self, dictionary)
        return type(found)(found.kind, found.index, found.unknown, lambda word: [word.lower()])

    monkeypatch.setattr(Tokenizer, "splitter", normalizing)
    result = neighbors({"mle": runs["mle"]}, lm_data, words=["w3", "W3"], topk=1)
    assert list(result.rows) == [("w3", "mle"), ("W3 (w3)", "mle")]
    assert result["w3", "mle"] == result["W3 (w3)", "mle"]


def test_word_similarity(runs, lm_data, pairs):
    result = word_similarity(runs, lm_data, [pairs])
    spearman = result.details["checkpoints"][0]["datasets"]["pairs"]["spearman"]
    assert result["mle"]["pairs"] == pytest.approx(100 * spearman) and result.rows["pairs"] == ["3/3"]


def test_align_sim(mt_data, links, tmp_path):  # noqa: F811
    checkpoints = {"mt": Checkpoint(model(tmp_path / "mt", mt_data))}
    result = align_sim(checkpoints, mt_data, links)
    assert list(result.rows) == ["mt", "orthogonal", "labeled tokens"]
    assert result["labeled tokens"]["AlignSim total"] == result.details["labelled"]["total"]
    assert shown(result, "labeled tokens")[-1] == str(result.details["labelled"]["total"])


def test_texts(runs, lm_data, tmp_path):
    files = {name: tmp_path / f"{name}.jsonl" for name in runs}
    for name, checkpoint in runs.items():
        written = generate_texts(checkpoint, lm_data, files[name], **TEXTS)
        assert written[str(files[name])]["texts"] == len(files[name].read_text().splitlines())
    result = text_metrics(files, lm_data)
    assert list(result.rows) == ["mle", "agg", "human"]
    assert result["agg"]["Rep (%)"] == 100 * result.details["files"][1]["repetition"]
    with pytest.raises(UserError, match="--output: found the file of --path"):
        generate_texts(runs["mle"], lm_data, runs["mle"].path, **TEXTS)


def test_every_function_has_the_defaults_of_its_command(lm_runs, lm_data, pairs, capsys):
    """What the command prints without options is what the function returns without options."""
    path = lm_runs / "mle" / "checkpoint_last.pt"
    runs = open_checkpoints([path])
    commands = {
        perplexity: (("eval-lm", lm_data, "--path", path), (runs, lm_data)),
        isotropy: (("isotropy", path), (runs,)),
        neighbors: (("neighbors", path, "--data", lm_data, "--words", "w1"), (runs, lm_data)),
        word_similarity: (("word-similarity", path, "--data", lm_data, "--datasets", pairs), (runs, lm_data, [pairs])),
    }
    for function, (command, arguments) in commands.items():
        assert main(list(map(str, command))) == 0
        options = {"words": ["w1"]} if function is neighbors else {}
        result = function(*arguments, **options)
        if function is perplexity:
            result = result.select(COMPARED)
        assert capsys.readouterr().out == f"{result.table(transposed=function is isotropy)}\n\n{result.signature}\n"


@pytest.mark.parametrize("name", [name for name in evaluation.__all__ if name[0].islower()])
def test_signatures_of_the_public_functions(name):
    """Typed throughout, options by keyword, and checkpoints, logs or texts by name first."""
    function = getattr(evaluation, name)
    hints = typing.get_type_hints(function)
    parameters = inspect.signature(function).parameters
    assert hints["return"] is Result and set(hints) == {*parameters, "return"}
    assert all(section in function.__doc__ for section in ("Args:", "Returns:", "Raises:", "Reference:"))
    for parameter in parameters.values():
        assert parameter.default is inspect.Parameter.empty or parameter.kind is parameter.KEYWORD_ONLY or (
            parameter.name == "data"
        )  # fmt: skip


@pytest.fixture
def openings(monkeypatch):
    """How often torch.load is called, by path."""
    counted = {}
    load = torch.load

    def counting(path, *arguments, **options):
        counted[str(path)] = counted.get(str(path), 0) + 1
        return load(path, *arguments, **options)

    monkeypatch.setattr(torch, "load", counting)
    return counted


@pytest.mark.parametrize(
    "command",
    ["eval-lm", "generate-lm", "isotropy", "neighbors", "word-similarity", "average-checkpoints", "convert-to-f2"],
)
def test_a_command_opens_each_checkpoint_once(command, lm_runs, lm_data, pairs, tmp_path, openings, capsys):
    paths = [lm_runs / name / "checkpoint_last.pt" for name in ("mle", "agg")]
    data, output = ("--data", lm_data), ("--output", tmp_path / "output")
    arguments = {
        "eval-lm": (lm_data, "--path", *paths),
        "generate-lm": (lm_data, "--path", paths[0], *output, "--prefix-length", 5, "--length", 9),
        "isotropy": (*paths, *data),
        "neighbors": (*paths, *data, "--words", "w1"),
        "word-similarity": (*paths, *data, "--datasets", pairs),
        "average-checkpoints": (*paths, *output),
        "convert-to-f2": ("--path", paths[0], *data, *output, "--positions", 100),
    }[command]
    status = main([command, *map(str, arguments)])
    assert status == 0, capsys.readouterr().err
    assert openings == {str(path): 1 for path in paths if path in arguments}


def test_align_sim_opens_each_checkpoint_once(mt_data, links, tmp_path, openings):  # noqa: F811
    paths = [str(model(tmp_path / name, mt_data)) for name in ("mle", "agps")]
    assert main(["align-sim", *paths, "--data", str(mt_data), "--alignments", str(links)]) == 0
    assert openings == dict.fromkeys(paths, 1)


def test_averaging_and_conversion(runs, lm_data, tmp_path):
    result = average_checkpoints(runs, tmp_path / "average.pt")
    assert result["agg"]["updates"] == 6 and Checkpoint(tmp_path / "average.pt").updates == 6
    result = convert_to_f2(runs["mle"], lm_data, tmp_path / "f2.pt", positions=100, device="cpu")
    assert result["fitted"]["KL (nats)"] == result.details["valid"]["fitted"]["kl"]
    factorized = Checkpoint(tmp_path / "f2.pt")
    evaluated = perplexity({"f2": factorized}, lm_data, device="cpu").details["checkpoints"][0]
    assert evaluated["expected_over_observed"]["total"] == pytest.approx(1, abs=1e-5)
    name = factorized.model_options["_name"]
    assert name == "transformer_lm_f2" and runs["mle"].model_options["_name"] == "transformer_lm"


def test_the_page_as_it_is_pasted(lm_runs, lm_data, tmp_path, monkeypatch, capsys):
    """The section "From Python" of docs/evaluation.md, for a word that this corpus has."""
    blocks = re.findall(r"```python\n([^>].*?)```", (ROOT / "docs" / "evaluation.md").read_text(), re.S)
    (tmp_path / "data-bin").mkdir()
    (tmp_path / "runs").symlink_to(lm_runs)
    (tmp_path / "data-bin" / "wikitext-2").symlink_to(lm_data)
    monkeypatch.chdir(tmp_path)
    try:
        exec("\n".join(blocks).replace("river", "w3"), {})
    finally:
        logging.disable(logging.NOTSET)
    assert "| human |" in capsys.readouterr().out and (tmp_path / "results" / "agg.jsonl").is_file()


class Counted:
    """A function that counts its calls."""

    def __init__(self, function):
        self.function, self.calls = function, 0
        self.__name__ = self.__qualname__ = "counted"
        self.__module__ = __name__
        self.__signature__ = inspect.signature(function)

    def __call__(self, *arguments, **options):
        self.calls += 1
        return self.function(*arguments, **options)


def test_a_kept_result_is_the_result(runs, lm_data, tmp_path):
    cache, counted = Cache(tmp_path / "cache"), Counted(isotropy)
    results = [cache.result(counted, runs, lm_data) for _ in range(2)]
    assert counted.calls == 1 and results[0] == results[1]
    assert results[0].table() == isotropy(runs, lm_data).table()
    assert results[0].json() == json.loads(json.dumps(isotropy(runs, lm_data).json()))
    cache.result(counted, runs, lm_data, groups="frequency")
    cache.result(counted, {"mle": runs["mle"]}, lm_data)
    cache.result(counted, dict(reversed(runs.items())), lm_data)  # the order of the rows is another
    assert counted.calls == 4
    assert cache.result(counted, runs, str(lm_data), groups="types") == results[0] and counted.calls == 4


def test_a_result_of_an_earlier_revision_is_made_again(runs, lm_data, tmp_path, monkeypatch):
    """With other columns, in the same version of the package."""
    cache, counted = Cache(tmp_path / "cache"), Counted(isotropy)
    monkeypatch.setattr("agg_fairseq.evaluation.cache.REVISION", 1)
    cache.result(counted, runs)
    monkeypatch.undo()
    assert cache.result(counted, runs)["mle"]["IsoScore total"] > 0 and counted.calls == 2


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda text: text[:-9], "JSONDecodeError: "),
        (lambda text: "[" * 20_000, "RecursionError: "),
        (lambda text: "[1]", "ValueError: found a list"),
        (lambda text: text.replace("I(W) total", "I(W) rare"), "ValueError: found another digest"),
    ],
)
def test_a_damaged_result_is_made_again_and_said(runs, tmp_path, capsys, damage, reason):
    cache, counted = Cache(tmp_path / "cache"), Counted(isotropy)
    first = cache.result(counted, runs)
    (path,) = (tmp_path / "cache").iterdir()
    path.write_text(damage(path.read_text()))
    capsys.readouterr()
    assert cache.result(counted, runs) == first and counted.calls == 2
    (said,) = [line for line in capsys.readouterr().err.splitlines() if "damaged" in line]
    assert said.startswith(f"{path}: damaged ({reason}") and said.endswith("); it is made again")
    assert cache.result(counted, runs) == first and counted.calls == 2 and "damaged" not in capsys.readouterr().err


def test_a_result_that_cannot_be_read_is_an_error(runs, tmp_path):
    cache = Cache(tmp_path / "cache")
    cache.result(isotropy, runs)
    (path,) = (tmp_path / "cache").iterdir()
    path.unlink()
    path.mkdir()
    with pytest.raises(UserError, match="Is a directory; expected a kept result that can be read and replaced"):
        cache.result(isotropy, runs)


@pytest.mark.parametrize("as_text", [False, True])
def test_a_file_that_changes_is_read_again(runs, lm_data, pairs, tmp_path, as_text):
    """Also one whose path is given as text, where the function takes a path."""
    cache, counted = Cache(tmp_path / "cache"), Counted(word_similarity)
    given = [str(pairs) if as_text else pairs]
    first = cache.result(counted, runs, lm_data, given)
    pairs.write_text(PAIRS + "w6\tw7\t0\n")
    second = cache.result(counted, runs, lm_data, given)
    assert counted.calls == 2 and first.rows["pairs"] == ["3/3"] and second.rows["pairs"] == ["4/4"]
    assert len(list((tmp_path / "cache").iterdir())) == 1  # the old entry is replaced
    pairs.unlink()
    with pytest.raises(UserError, match="unreadable|expected a file to be measured"):
        cache.result(counted, runs, lm_data, given)


def test_a_result_is_of_the_file_that_was_read(lm_runs, tmp_path):
    """A training may replace a checkpoint that is open already."""
    path, cache = tmp_path / "run" / "checkpoint_last.pt", Cache(tmp_path / "kept")
    path.parent.mkdir()
    shutil.copy(lm_runs / "mle" / "checkpoint_last.pt", path)
    before = open_checkpoints([path])
    shutil.copy(lm_runs / "agg" / "checkpoint_last.pt", tmp_path / "new.pt")
    os.replace(tmp_path / "new.pt", path)
    old = cache.result(isotropy, before)
    new = cache.result(isotropy, open_checkpoints([path]))
    assert new.rows == isotropy(open_checkpoints([path])).rows != old.rows


def test_options_of_a_namespace_can_be_replaced(lm_runs, lm_data, tmp_path):
    """As older checkpoints have them; what is opened stays as it was."""
    state = torch.load(lm_runs / "mle" / "checkpoint_last.pt", weights_only=True)
    flat = {**state["cfg"]["model"], **state["cfg"]["task"], "task": "language_modeling", "arch": "transformer_lm"}
    options = {**flat, "criterion": "mle", "optimizer": "adam", "lr_scheduler": "fixed", "lr": [0.1], "data": "gone"}
    torch.save({**state, "cfg": None, "args": Namespace(**options)}, tmp_path / "old.pt")
    checkpoint = Checkpoint(tmp_path / "old.pt")
    _, task = build_model(checkpoint, lm_data, {"tokens_per_sample": 8, "sample_break_mode": "eos"})
    assert (task.args.tokens_per_sample, task.args.sample_break_mode, task.args.data) == (8, "eos", str(lm_data))
    assert vars(checkpoint.state["args"]) == options


def test_a_folder_whose_name_is_not_utf8(lm_runs, tmp_path, capsys):
    folder = tmp_path / os.fsdecode(b"r\xff")
    folder.mkdir()
    shutil.copy(lm_runs / "mle" / "checkpoint_last.pt", folder)
    path = folder / "checkpoint_last.pt"
    assert main(["isotropy", str(path), "--json", str(tmp_path / "o.json")]) == 0
    assert json.loads((tmp_path / "o.json").read_text())["checkpoints"][0]["path"] == str(path)
    cache = Cache(tmp_path / "kept")
    assert cache.result(isotropy, open_checkpoints([path])) == cache.result(isotropy, open_checkpoints([path]))


def test_a_file_is_kept(runs, lm_data, tmp_path, monkeypatch, capsys):
    """As long as nothing changes; a file of its name in the working folder is none of its inputs."""
    cache, counted = Cache(tmp_path / "cache"), Counted(generate_texts)
    monkeypatch.chdir(tmp_path)
    Path("texts.jsonl").write_text("another")
    for split in ("test", "test", "valid"):
        path = cache.file("texts.jsonl", counted, runs["mle"], lm_data, split=split, **TEXTS)
        Path("texts.jsonl").write_text("changed")
    assert counted.calls == 2 and path == tmp_path / "cache" / "texts.jsonl"
    for damaged in (tmp_path / "cache" / "texts.jsonl.key.json", path):
        damaged.write_text("damaged")
        cache.file("texts.jsonl", counted, runs["mle"], lm_data, split="valid", **TEXTS)
        assert f"{damaged}: damaged (" in capsys.readouterr().err
    path.unlink()
    cache.file("texts.jsonl", counted, runs["mle"], lm_data, split="valid", **TEXTS)
    assert counted.calls == 5 and path.is_file() and "damaged" not in capsys.readouterr().err
