"""The `agg-fairseq` command, called in this process: errors, files, help."""

import io
import json
import os
import sys
from pathlib import Path

import pytest
import torch

from agg_fairseq.cli.main import main
from agg_fairseq.errors import UserError
from agg_fairseq.files import atomic_write, write_json
from agg_fairseq.names import unique_names
from agg_fairseq.result import format_table
from tests.commands import changed, diverge, refused, run


@pytest.fixture
def good_checkpoint(lm_runs):
    return lm_runs / "mle" / "checkpoint_best.pt"


def test_a_bad_checkpoint_is_one_line_and_nothing_is_written(
    lm_data, tmp_path, capsys, monkeypatch
):
    """Damaged ones are in test_hostile_checkpoints.py."""
    monkeypatch.chdir(tmp_path)
    torch.save({"weights": torch.zeros(2)}, "other.pt")
    for name, words in (
        ("missing.pt", "no such file"),
        ("other.pt", "found weights; expected a fairseq checkpoint"),
    ):
        for command in (
            ("eval-lm", name, "--data", lm_data, "--json", "new.json"),
            ("plot", "singular-values", name, "-o", "out.png"),
        ):
            error = refused(capsys, *command)
            assert words in error and name in error
    assert os.listdir() == ["other.pt"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda state: state["model"].pop("decoder.layers.0.fc1.weight"), "cannot build its model"),
        (diverge, "found an infinity or NaN"),
        (
            lambda state: state["cfg"]["task"].update(tokens_per_sample=8),
            "trained on [8, 16] tokens per block",
        ),
    ],
)
def test_changed_checkpoints_are_one_line(
    lm_data, good_checkpoint, tmp_path, capsys, change, words
):
    path = changed(good_checkpoint, tmp_path / "changed.pt", change)
    assert words in refused(capsys, "eval-lm", path, good_checkpoint, "--data", lm_data)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--context-window", "16"], "found 16, 16 of them context, and "),
        (["--split", "dev"], "dev.bin"),
        (["--name", "a", "b"], "a name for each of 1 files"),
        # fairseq says it
        (["--max-tokens", "4"], "error: Sentences lengths should not exceed max_tokens=4"),
    ],
)
def test_bad_values_of_eval_lm(lm_data, good_checkpoint, capsys, arguments, words):
    assert words in refused(capsys, "eval-lm", good_checkpoint, "--data", lm_data, *arguments)


def test_mistakes_with_options(tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["eval-lm", "x", "--data", "y", "--groups", "words"])
    assert stop.value.code == 2 and "'words'" in capsys.readouterr().err
    assert ".png, .svg, .pdf" in refused(
        capsys, "plot", "singular-values", "c.pt", "--output", tmp_path / "x.docx"
    )
    assert "File name too long" in refused(capsys, "isotropy", "x\n" * 300)
    assert main([]) == 2
    assert "COMMAND" in capsys.readouterr().err


def test_files_are_written_whole(tmp_path):
    target = tmp_path / "a" / "x.json"
    write_json(target, {"é": 1})
    assert json.loads(target.read_text()) == {"é": 1}

    def half_written(path):
        path.write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        atomic_write(target, half_written)
    assert json.loads(target.read_text()) == {"é": 1} and os.listdir(target.parent) == ["x.json"]
    with pytest.raises(UserError, match="cannot write"):
        write_json(target / "y.json", 1)
    assert "| a\\|b c |" in format_table(["", "a"], [["a|b\nc", "1"]])


def test_only_what_a_command_wrote_is_written_over(
    good_checkpoint, lm_data, tmp_path, capsys, monkeypatch
):
    """Of every kind of file; a checkpoint only over a checkpoint, and so on."""
    monkeypatch.chdir(tmp_path)
    texts = (
        "generate-lm", good_checkpoint, "--data", lm_data, "--prefix-length", 5, "--length", 5,
        "--max-texts", 1,
    )  # fmt: skip
    calibrate = ("calibrate", good_checkpoint, "--data", lm_data, "--split", "test")
    writing = {
        "numbers": ("isotropy", good_checkpoint, "--json"),
        "checkpoint": (*calibrate, "--force", "-o"),
        "texts": (*texts, "-o"),
        **{
            f"p.{kind}": ("plot", "singular-values", good_checkpoint, "-o")
            for kind in ("png", "svg", "pdf")
        },
    }
    for name, command in writing.items():
        Path(name).write_text('{"model_type": "gpt2"}')
        assert f"found {name}, a file that no command here wrote; name another" in refused(
            capsys, *command, name
        )
        assert Path(name).read_text() == '{"model_type": "gpt2"}'
        Path(name).write_bytes(b"")
        for _ in range(2):
            run(capsys, *command, name)
    found = refused(capsys, *calibrate, "-o", "checkpoint")
    assert "checkpoint: found a file; add --force to replace it" in found
    assert "--output: found numbers, a file" in refused(capsys, *writing["checkpoint"], "numbers")
    assert "--json: found the file of --output" in refused(
        capsys, *texts, "-o", "texts", "--json", "./texts"
    )


def test_unique_names():
    assert unique_names(["a/x.pt", "b/x.pt"], None) == ["a", "b"]
    assert unique_names(["r/x.pt", "q/r/x.pt"], None) == ["r/x.pt", "q/r/x.pt"]
    assert unique_names(["a/x.json", "b/y.json"], None, "stem") == ["x", "y"]
    for paths, names in ((["a", "b"], ["m", "m"]), (["a/x.pt", "a/x.pt"], None)):
        with pytest.raises(UserError, match="expected a name for each of 2 files, each once"):
            unique_names(paths, names)


def test_a_terminal_of_another_encoding(good_checkpoint, monkeypatch):
    """σ in the table, and no character for it."""
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), "ascii"))
    assert main(["isotropy", str(good_checkpoint)]) == 0
    assert b"\\u03c32" in sys.stdout.buffer.getvalue()
