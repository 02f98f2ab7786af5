"""The `agg-fairseq` command, called in this process: errors, files, logs, doctor."""

import json
import os
import shutil
import subprocess
import sys

import pytest
import torch
from fairseq.trainer import Trainer

from agg_fairseq.checkpoints.fairseq_checkpoint import Checkpoint
from agg_fairseq.cli import doctor
from agg_fairseq.cli.main import COMMANDS, main
from agg_fairseq.data.binarized import count_tokens
from agg_fairseq.errors import UserError
from agg_fairseq.evaluation.training_log import read_log
from agg_fairseq.files import write_json, write_whole
from agg_fairseq.names import unique_names
from agg_fairseq.result import format_table
from tests.small_trainings import build
from tests.unit.test_pretrained import folder


class _Code:
    def __reduce__(self):
        return os.system, ("true",)


def write_checkpoint(path, kind):
    if kind == "text":
        path.write_text("no checkpoint")
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "truncated":
        torch.save({"model": {"w": torch.zeros(1000)}, "cfg": {"a": 1}}, path)
        path.write_bytes(path.read_bytes()[:900])
    elif kind == "code":
        torch.save({"model": {}, "cfg": _Code()}, path)
    elif kind == "other":
        torch.save({"weights": torch.zeros(2)}, path)
    return path


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("missing", "no such file"),
        ("text", "no readable checkpoint"),
        ("empty", "no readable checkpoint"),
        ("truncated", "no readable checkpoint"),
        ("code", "can run code"),
        ("other", "found weights; expected a fairseq checkpoint"),
    ],
)
@pytest.mark.parametrize("command", ["eval-lm", "plot"])
def test_bad_checkpoints_are_one_line(lm_data, tmp_path, capsys, command, kind, words):
    path = write_checkpoint(tmp_path / "c.pt", kind)
    output = tmp_path / "out.json"
    output.write_text("the old file")
    arguments = {
        "eval-lm": ["eval-lm", lm_data, "--path", path, "--json", output],
        "plot": ["plot", "singular-values", path, "--output", tmp_path / "out.png"],
    }[command]
    assert main([str(argument) for argument in arguments]) == 2
    error = capsys.readouterr().err
    assert words in error and str(path) in error and error.count("\n") == 1
    assert output.read_text() == "the old file"


def test_data_folder_without_dictionary(good_checkpoint, tmp_path, capsys):
    assert main(["eval-lm", str(tmp_path), "--path", str(good_checkpoint)]) == 2
    assert "found no dict.txt" in capsys.readouterr().err
    assert main(["eval-lm", str(tmp_path / "none"), "--path", str(good_checkpoint)]) == 2
    assert "no such folder" in capsys.readouterr().err


def test_checkpoint_is_read_without_running_it(tmp_path):
    marker = tmp_path / "ran"

    class Evil:
        def __reduce__(self):
            return os.system, (f"touch {marker}",)

    torch.save({"model": {}, "cfg": Evil()}, tmp_path / "evil.pt")
    with pytest.raises(UserError, match="run code"):
        Checkpoint(tmp_path / "evil.pt")
    assert not marker.exists()


@pytest.fixture(scope="module")
def good_checkpoint(lm_data, tmp_path_factory):
    """A language model, saved as fairseq-train saves it."""
    path = tmp_path_factory.mktemp("good") / "checkpoint.pt"
    cfg, task, model, criterion = build(lm_data, "--criterion", "mle")
    trainer = Trainer(cfg, task, model, criterion)
    trainer.consolidate_optimizer()
    trainer.save_checkpoint(str(path), {"train_iterator": {"epoch": 1}})
    return path


def changed(path, target, change):
    """A copy of a checkpoint with something changed."""
    state = torch.load(path, weights_only=True)
    change(state)
    torch.save(state, target)
    return target


def diverge(state):
    state["model"]["decoder.output_projection.weight"][3, 0] = float("nan")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda state: state["cfg"].update(task={"_name": "dummy_lm"}), "found a model of the task dummy_lm"),
        (lambda state: state["cfg"].update(task=None), "found a model of the task"),
        (lambda state: state["cfg"]["model"].update(_name="unheard_of", arch="unheard_of"), "cannot build its model"),
        (lambda state: state["model"].pop("decoder.layers.0.fc1.weight"), "cannot build its model"),
        (diverge, "found an infinity or NaN"),
    ],
)
def test_changed_checkpoints_are_one_line(lm_data, good_checkpoint, tmp_path, capsys, change, words):
    path = changed(good_checkpoint, tmp_path / "changed.pt", change)
    assert main(["eval-lm", str(lm_data), "--path", str(path)]) == 2
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1


def test_blocks_of_different_lengths_are_not_compared(lm_data, good_checkpoint, tmp_path, capsys):
    other = changed(good_checkpoint, tmp_path / "o.pt", lambda state: state["cfg"]["task"].update(tokens_per_sample=8))
    arguments = ["eval-lm", str(lm_data), "--path", str(good_checkpoint), str(other)]
    assert main(arguments) == 2
    assert "trained on 16, 8 tokens per block" in capsys.readouterr().err
    assert main([*arguments, "--tokens-per-sample", "8"]) == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--device", "foo"], "which this machine lacks"),
        (["--tokens-per-sample", "0"], "--tokens-per-sample: expected 1 to"),
        (["--context-window", "16"], "--context-window: expected 0 to 15"),
        (["--max-tokens", "4"], "--max-tokens: expected 16 (--tokens-per-sample) to 2^31 - 1"),
        (["--gen-subset", "dev"], "no split 'dev'"),
        (["--name", "a", "b"], "2 names for 1"),
    ],
)
def test_bad_values_of_eval_lm(lm_data, good_checkpoint, capsys, arguments, words):
    assert main(["eval-lm", str(lm_data), "--path", str(good_checkpoint), *arguments]) == 2
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1


@pytest.mark.parametrize("damage", ["test.bin", "train.idx", "dict.txt"])
def test_damaged_data(lm_data, good_checkpoint, tmp_path, capsys, damage):
    data = tmp_path / "bin"
    shutil.copytree(lm_data, data)
    (data / damage).write_bytes(b"" if damage != "dict.txt" else b"word without count\n")
    assert main(["eval-lm", str(data), "--path", str(good_checkpoint)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    if damage != "test.bin":
        plot = ["plot", "projection", str(good_checkpoint), "--data", str(data), "--output", str(tmp_path / "x.png")]
        assert main(plot) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_unknown_option_value(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["eval-lm", "x", "--path", "y", "--sample-break-mode", "words"])
    assert stop.value.code == 2
    assert "'words'" in capsys.readouterr().err


def test_plot_refuses_an_unknown_ending(tmp_path, capsys):
    assert main(["plot", "singular-values", "c.pt", "--output", str(tmp_path / "x.docx")]) == 2
    assert ".png, .svg, .pdf" in capsys.readouterr().err


def test_counts_include_eos(lm_data):
    from fairseq.data import Dictionary

    dictionary = Dictionary.load(str(lm_data / "dict.txt"))
    counts = count_tokens(lm_data, dictionary)
    text = (lm_data.parent / "train").read_text().splitlines()
    assert counts[dictionary.eos()] == len(text)
    assert counts[dictionary.index("w0")] == sum(line.split().count("w0") for line in text)
    with pytest.raises(UserError, match="nowhere.bin"):
        count_tokens(lm_data, dictionary, "nowhere")


def test_files_are_written_whole(tmp_path):
    target = tmp_path / "a" / "x.json"
    write_json(target, {"é": 1})
    assert json.loads(target.read_text()) == {"é": 1}

    def half_written(path):
        path.write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_whole(target, half_written)
    assert json.loads(target.read_text()) == {"é": 1}
    assert [path.name for path in target.parent.iterdir()] == ["x.json"]


def test_unwritable_output(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write"):
        write_json(tmp_path / "file" / "x.json", 1)


def test_log_is_read_in_both_forms(tmp_path):
    log = tmp_path / "train.log"
    log.write_text(
        '{"epoch": 1, "update": 0.5, "loss": "3.5", "rare_tokens": "7", "isotropy": null, "num_updates": "10"}\n'
        '2026-01-01 | INFO | train_inner | {"epoch": 1, "loss": "3.0", "num_updates": "20"}\n'
        '{"epoch": 1, "valid_loss": "2.0", "valid_num_updates": "20"}\n'
        '{"epoch": 1, "train_loss": "2.5", "train_num_updates": "20"}\n'
        "done training in 3 seconds\n"
        '{"epoch": 1, "update": 0.7, "lo'
    )
    inner = read_log(log)
    assert [(entry["num_updates"], entry["loss"]) for entry in inner] == [(10, 3.5), (20, 3.0)]
    assert inner[0]["rare_tokens"] == 7 and "isotropy" not in inner[0]
    assert read_log(log, "valid")[0]["loss"] == 2.0
    assert read_log(log, "train")[0]["loss"] == 2.5
    with pytest.raises(UserError, match="found no 'valid1' lines"):
        read_log(log, "valid1")
    with pytest.raises(UserError, match="No such file"):
        read_log(tmp_path / "none")


def test_what_is_trained_again_replaces_what_was(tmp_path):
    """A run that was resumed from update 15 with another --log-interval, and one that began anew in the same file."""
    log = tmp_path / "train.log"
    lines = [f'{{"epoch": 1, "loss": "{loss}", "num_updates": "{update}"}}' for update, loss in
             ((10, 9), (20, 8), (30, 7), (18, 8.5), (25, 7.5))]  # fmt: skip
    log.write_text("\n".join(lines))
    assert [(entry["num_updates"], entry["loss"]) for entry in read_log(log)] == [(10, 9), (18, 8.5), (25, 7.5)]
    log.write_text("\n".join([*lines, lines[0]]))
    assert [entry["num_updates"] for entry in read_log(log)] == [10]


def test_data_are_not_written_over(lm_data, good_checkpoint, tmp_path, capsys):
    data = shutil.copytree(lm_data, tmp_path / "bin")
    for file in ("dict.txt", "train.bin"):
        assert main(["isotropy", str(good_checkpoint), "--data", str(data), "--json", str(data / file)]) == 2
        assert "a file in a folder that is read" in capsys.readouterr().err
        assert (data / file).read_bytes() == (lm_data / file).read_bytes()
    for _ in range(2):
        assert main(["isotropy", str(good_checkpoint), "--data", str(data), "--json", str(data / "i.json")]) == 0


def test_the_configuration_of_a_model_of_transformers_is_not_written_over(tmp_path, capsys):
    model = folder(tmp_path / "gpt")
    before = (model / "config.json").read_bytes()
    for path in (model, model / "model.safetensors"):
        assert main(["isotropy", str(path), "--json", str(model / "config.json")]) == 2
        assert "name another" in capsys.readouterr().err
    assert (model / "config.json").read_bytes() == before
    for _ in range(2):  # a result that was written there is replaced
        assert main(["isotropy", str(model), "--json", str(model / "isotropy.json")]) == 0
    linked = tmp_path / "snapshot"
    linked.mkdir()
    for file in model.iterdir():
        (linked / file.name).symlink_to(file)
    assert main(["isotropy", str(linked), "--json", str(linked / "config.json")]) == 2
    assert (linked / "config.json").is_symlink()


def test_a_name_that_is_too_long_for_a_file(capsys):
    assert main(["isotropy", "x\n" * 300]) == 2
    error = capsys.readouterr().err
    assert "File name too long" in error and error.count("\n") == 1


@pytest.mark.parametrize("command", ["eval-lm", "isotropy", "neighbors"])
def test_a_checkpoint_is_not_written_over(lm_data, good_checkpoint, tmp_path, capsys, command):
    path = shutil.copy(good_checkpoint, tmp_path / "c.pt")
    arguments = {"eval-lm": [lm_data, "--path", path], "isotropy": [path], "neighbors": [path, "--data", lm_data]}
    assert main([command, *map(str, arguments[command]), "--json", str(path)]) == 2
    assert f"--json: found {path}, a file that is read" in capsys.readouterr().err
    assert path.read_bytes() == good_checkpoint.read_bytes()


def test_names():
    assert unique_names(["a/x.pt", "b/x.pt"], None) == ["a", "b"]
    assert unique_names(["r/x.pt", "q/r/x.pt"], None) == ["r/x.pt", "q/r/x.pt"]
    assert unique_names(["a/x.json", "b/y.json"], None, "stem") == ["x", "y"]
    assert unique_names(["a/x", "b/y"], None, "name") == ["x", "y"]
    with pytest.raises(UserError, match="found the name 'm' twice"):
        unique_names(["a", "b"], ["m", "m"])
    with pytest.raises(UserError, match="found a/x.pt twice"):
        unique_names(["a/x.pt", "a/x.pt"], None)


def test_table():
    assert format_table(["", "a"], [["x", "1.0"], ["yy", None]]).splitlines() == [
        "|    |   a |",
        "|----|----:|",
        "| x  | 1.0 |",
        "| yy |   — |",
    ]
    assert "| a\\|b c |" in format_table(["", "a"], [["a|b\nc", "1"]])


@pytest.mark.slow
def test_a_terminal_of_another_encoding(good_checkpoint):
    """σ in the table, and no character for it."""
    program = f"from agg_fairseq.cli.main import main; main(['isotropy', {str(good_checkpoint)!r}])"
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert result.returncode == 0 and "\\u03c32" in result.stdout, result.stderr


def test_doctor_is_content_here(capsys):
    assert main(["doctor"]) == 0
    printed = capsys.readouterr().out
    assert "functional API: ready; training with fairseq: ready" in printed
    for name in ("Python", "torch", "fairseq", "hydra", "omegaconf", "numpy", "GPU"):
        assert name in printed


def test_doctor_names_what_is_missing(capsys, monkeypatch):
    versions = doctor.installed_versions() | {"fairseq": None}
    monkeypatch.setattr(doctor, "installed_versions", lambda: versions)
    assert main(["doctor"]) == 1
    printed = capsys.readouterr().out
    assert "note: fairseq is missing, by which models are trained and data is read; pip install" in printed
    assert "functional API: ready; training with fairseq: not installed" in printed


def test_doctor_misses_triton_on_a_gpu(capsys, monkeypatch):
    monkeypatch.setattr(doctor, "_has_gpu", lambda: True)
    monkeypatch.setattr(doctor, "_gpu", lambda: "a card")
    found = doctor.importlib.util.find_spec
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: None if name == "triton" else found(name))
    assert main(["doctor"]) == 0
    assert "note: found a GPU but no Triton" in capsys.readouterr().out


@pytest.mark.grid(1)
@pytest.mark.parametrize("missing", ["torch", "numpy", "fairseq"])
def test_doctor_runs_where_things_are_missing(missing):
    program = f"import sys; sys.modules[{missing!r}] = None\n"
    program += "from agg_fairseq.cli.main import main; sys.exit(main(['doctor']))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 1 and "error: " in result.stdout and "Traceback" not in result.stderr


def test_doctor_names_a_fairseq_that_cannot_be_imported(monkeypatch):
    monkeypatch.setattr(doctor, "_import_failure", lambda *modules: "ValueError: mutable default")
    problems = list(doctor.known_problems(doctor.installed_versions() | {"fairseq": "0.12.2"}))
    assert any(problem.stops == "fairseq" and "0.12.2 cannot be imported" in problem.text for problem in problems)


def test_doctor_names_two_packages_of_fairseq(monkeypatch):
    versions = doctor.installed_versions()
    there = ("fairseq-fixed", "ve-fairseq")
    monkeypatch.setattr(doctor.importlib.metadata, "distributions", lambda name: [name] if name in there else [])
    texts = [problem.text for problem in doctor.known_problems(versions)]
    assert any("found fairseq-fixed and ve-fairseq, which install the same files" in text for text in texts)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_every_command(command, capsys):
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    assert len(capsys.readouterr().out) > 100
