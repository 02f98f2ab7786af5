"""The evaluations as they are used from a notebook: functions of opened checkpoints that return a Result."""

import inspect
import logging
import re
import typing
from argparse import Namespace

import pytest
import torch

import agg_fairseq.evaluation as evaluation
from agg_fairseq.checkpoints.averaging import average_checkpoints
from agg_fairseq.checkpoints.fairseq_checkpoint import Checkpoint, open_checkpoints
from agg_fairseq.cli.main import main
from agg_fairseq.errors import UserError
from agg_fairseq.evaluation import Result, generate_texts, isotropy, neighbors, perplexity, text_metrics
from agg_fairseq.evaluation import word_similarity as similarity
from agg_fairseq.f2.conversion import convert_to_f2
from agg_fairseq.models.from_checkpoint import build_model
from tests.commands import TRANSLATION, save_checkpoint
from tests.conftest import ROOT

TEXTS = {"prefix_length": 5, "length": 9, "device": "cpu"}


@pytest.fixture
def runs(lm_runs):
    return open_checkpoints([lm_runs / name / "checkpoint_last.pt" for name in ("mle", "agg")])


@pytest.fixture
def pairs(tmp_path):
    path = tmp_path / "pairs.txt"
    path.write_text("w0\tw1\t3\nw2\tw3\t1\nw4\tw5\t2\n")
    return path


def test_values_of_the_table_are_those_of_the_details(runs, lm_data, pairs, tmp_path):
    alone, grouped = isotropy(runs), isotropy(runs, lm_data)
    assert alone["agg"]["I(W) total"] == grouped["agg"]["I(W) total"]
    assert alone["agg"]["I(W) rare"] is None and grouped["agg"]["I(W) rare"] > 0
    assert [column.digits for column in alone.columns] == [3] * 21
    assert alone.details["checkpoints"][1]["matrix"] == runs["agg"].output_embedding.description
    found = neighbors(runs, lm_data, words=["w3", "w5"], topk=2)
    assert list(found.rows) == [("w3", "mle"), ("w3", "agg"), ("w5", "mle"), ("w5", "agg")]
    first = found.details["words"][0]["checkpoints"][1]["neighbors"][0]
    assert found["w3", "agg"]["1"].startswith(first["readable"]) and found.labels == ("", "checkpoint")
    result = similarity(runs, lm_data, [pairs])
    spearman = result.details["checkpoints"][0]["datasets"]["pairs"]["spearman"]
    assert result["mle"]["pairs"] == pytest.approx(100 * spearman) and result.rows["pairs"] == ["3/3"]
    files = {name: tmp_path / f"{name}.jsonl" for name in runs}
    for name, checkpoint in runs.items():
        written = generate_texts(checkpoint, lm_data, files[name], **TEXTS)
        assert written[str(files[name])]["texts"] == len(files[name].read_text().splitlines())
    texts = text_metrics(files, lm_data)
    assert list(texts.rows) == ["mle", "agg", "human"]
    assert texts["agg"]["Rep (%)"] == 100 * texts.details["files"][1]["repetition"]
    with pytest.raises(UserError, match="--output: found the file of --path"):
        generate_texts(runs["mle"], lm_data, runs["mle"].path, **TEXTS)


@pytest.mark.parametrize("name", [name for name, one in vars(evaluation).items() if inspect.isfunction(one)])
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


def test_a_command_opens_each_checkpoint_once(lm_runs, lm_data, mt_data, pairs, tmp_path, monkeypatch, capsys):
    openings, load = {}, torch.load

    def counting(path, *arguments, **options):
        openings[str(path)] = openings.get(str(path), 0) + 1
        return load(path, *arguments, **options)

    monkeypatch.setattr(torch, "load", counting)
    paths = [lm_runs / name / "checkpoint_last.pt" for name in ("mle", "agg")]
    rows = len((mt_data / "dict.de.txt").read_text().splitlines()) + 4
    translators = [save_checkpoint(tmp_path / name / "c.pt", torch.randn(rows, 4), TRANSLATION) for name in "ab"]
    (tmp_path / "links").write_text("0-0\n" * len((mt_data.parent / "train.en").read_text().splitlines()))
    data, output = ("--data", lm_data), ("--output", tmp_path / "output")
    for command, *arguments in (
        ("eval-lm", lm_data, "--path", *paths),
        ("generate-lm", lm_data, "--path", paths[0], *output, "--prefix-length", 5, "--length", 9),
        ("isotropy", *paths, *data),
        ("neighbors", *paths, *data, "--words", "w1"),
        ("word-similarity", *paths, *data, "--datasets", pairs),
        ("average-checkpoints", *paths, *output),
        ("convert-to-f2", "--path", paths[0], *data, *output, "--positions", 100),
        ("align-sim", *translators, "--data", mt_data, "--alignments", tmp_path / "links"),
    ):
        openings.clear()
        assert main([command, *map(str, arguments)]) == 0, capsys.readouterr().err
        assert openings == {str(path): 1 for path in (*paths, *translators) if path in arguments}, command


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
