"""The `agg-fairseq` command, called in this process: errors, files, help."""

import io
import sys
from pathlib import Path

import pytest
import torch

from agg_fairseq.cli.main import main
from agg_fairseq.errors import UserError
from agg_fairseq.names import unique_names
from benchmarks import commands, criterion, f2_softmax
from tests.commands import changed, diverge, refused, run


def set_task(**options):
    return lambda state: state["cfg"]["task"].update(options)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda state: state["model"].pop("decoder.layers.0.fc1.weight"), "cannot build its model"),
        (lambda state: state.pop("model"), "found args, cfg, "),
        (diverge, "found an infinity or NaN"),
        (set_task(tokens_per_sample=8), "trained on [8, 16] tokens per block"),
        (set_task(_name="masked_lm"), "found a model of the task masked_lm"),
    ],
)
def test_bad_checkpoints_are_one_line(change, words, lm_data, checkpoint, tmp_path):
    path, output = changed(checkpoint, tmp_path / "changed.pt", change), tmp_path / "new.json"
    given = ("eval-lm", path, checkpoint, "--data", lm_data, "--json", output)
    assert words in refused(*given) and not output.exists()


def test_mistakes_with_options(checkpoint, lm_data, tmp_path, capsys):
    given = ("eval-lm", checkpoint, "--data", lm_data)
    texts = ("generate-lm", checkpoint, "--data", lm_data, "-o", tmp_path / "o")
    for *arguments, words in (
        (*given, "--context-window 16", "found 16, 16 of them context, and "),
        # fairseq says it
        (*given, "--max-tokens 4", "error: Sentences lengths should not exceed max_tokens=4"),
        ("isotropy", "missing.pt", "missing.pt: found no such file"),
        ("isotropy", "c.pt", "--groups frequency", "--groups: found it without --data or --tr"),
        ("bleu", "log", "--moses de", "--moses: found it without --reference"),
        (*texts, "--bpe gpt2", "--bpe: found it without --prefixes"),
        (*texts, "--prefixes p --split valid", "--split: found it with --prefixes, which"),
        (*given, "--bos", "or --text, with --train-text and --bos"),
    ):
        assert words in refused(*arguments)
    assert main([]) == 2
    assert "COMMAND" in capsys.readouterr().err


def test_only_own_files_are_written_over(checkpoint, lm_data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    texts = ("generate-lm", checkpoint, "--data", lm_data, "--prefix-length 5 --length 5")
    calibrate = ("calibrate", checkpoint, "--data", lm_data, "--split test")
    for name, *command in (
        ("numbers", "isotropy", checkpoint, "--json"),
        ("texts", *texts, "--max-texts 1 -o"),
        ("p.png", "plot", "singular-values", checkpoint, "-o"),
    ):
        file = Path(name)
        file.write_text('{"model_type": "gpt2"}')
        words = f"found {name}, a file that no command here wrote; name another"
        assert words in refused(*command, name) and "gpt2" in file.read_text()
        file.write_text("")
        for _ in range(2):
            run(*command, name)
    for *command, words in (
        (*calibrate, "--force -o numbers", "--output: found numbers, a file"),
        (*texts, "-o", "texts", "--json ./texts", "--json: found the file of --output"),
    ):
        assert words in refused(*command)


def test_unique_names():
    assert unique_names(["a/x.pt", "b/x.pt"], None) == ["a", "b"]
    assert unique_names(["r/x.pt", "q/r/x.pt"], None) == ["r/x.pt", "q/r/x.pt"]
    assert unique_names(["a/x.json", "b/y.json"], None, "stem") == ["x", "y"]
    for paths, names in ((["a", "b"], ["m", "m"]), (["a/x.pt", "a/x.pt"], None)):
        with pytest.raises(UserError, match="expected a name for each of 2 files, each once"):
            unique_names(paths, names)


def test_a_terminal_of_another_encoding(checkpoint, monkeypatch):
    """σ in the table, and no character for it."""
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), "ascii"))
    assert main(["isotropy", str(checkpoint)]) == 0
    assert b"\\u03c32" in sys.stdout.buffer.getvalue()


@pytest.mark.slow
@pytest.mark.parametrize("row", commands.ROWS)
def test_a_command_agrees_with_its_peer_of_the_benchmarks(row):
    commands.main(["--small", row])


@pytest.mark.parametrize("benchmark", [criterion, f2_softmax])
def test_every_training_step_of_the_benchmarks_gives_gradients(benchmark):
    variants = benchmark.build((256, 512, 16), torch.float32, "cpu")
    for name, step in variants.steps.items():
        if callable(step) and name not in ("compiled cross_entropy", "three products"):
            variants.timed(name)()
            assert variants.trained[0].grad.norm() > 0, name
