"""Checkpoints that would run code, or hold anything but a model: one line and status 2, whatever the command."""

import io
import os
import pickle
import tarfile
import warnings
import zipfile
from argparse import Namespace

import numpy as np
import pytest
import torch
from hypothesis import given

from agg_fairseq.checkpoints.fairseq_checkpoint import Checkpoint
from agg_fairseq.cli.main import main
from tests.conftest import ROOT, SMALL_LM, call
from tests.hostile import FEW, MORE, damaged, refusal

WEIGHT = "decoder.output_projection.weight"
OPTIONS = {"task": {"_name": "language_modeling", "tokens_per_sample": 16}, "model": {"_name": "transformer_lm"}}


class Evil:
    """Whoever unpickles it runs a command."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch '{self.marker}'",)


class EvilCode(Evil):
    """Whoever unpickles it runs Python."""

    def __reduce__(self):
        return eval, (f"open({str(self.marker)!r}, 'w')",)


def checkpoint(**parts):
    return {"model": {WEIGHT: torch.randn(12, 4)}, "cfg": OPTIONS, **parts}


def saved(state, **options):
    file = io.BytesIO()
    torch.save(state, file, **options)
    return file.getvalue()


def crafted_zip(pickled):
    """What torch takes for its own format, around any pickle."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", pickled)
        archive.writestr("archive/version", "3\n")
        archive.writestr("archive/byteorder", "little")
    return file.getvalue()


def legacy_tar(pickled):
    """torch's first format."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name in ("storages", "tensors", "pickle"):
            member = tarfile.TarInfo(name)
            member.size = len(pickled)
            archive.addfile(member, io.BytesIO(pickled))
    return file.getvalue()


def objects(evil):
    return np.array([evil], dtype=object)


RUNNING_CODE = {
    "zip": lambda evil: saved(checkpoint(cfg=evil)),
    "legacy": lambda evil: saved(checkpoint(cfg=evil), _use_new_zipfile_serialization=False),
    "pickle": lambda evil: pickle.dumps(checkpoint(model={}, cfg=evil)),
    "pickle alone": pickle.dumps,
    "crafted zip": lambda evil: crafted_zip(pickle.dumps(evil, protocol=2)),
    "crafted zip of a state": lambda evil: crafted_zip(pickle.dumps({"model": {}, "cfg": evil}, protocol=2)),
    "tar": lambda evil: legacy_tar(pickle.dumps(evil, protocol=2)),
    "numpy": lambda evil: saved(checkpoint(extra_state={"array": objects(evil)})),
    "namespace": lambda evil: saved(checkpoint(cfg=None, args=Namespace(criterion=evil))),
    "optimizer": lambda evil: saved(checkpoint(last_optimizer_state=[evil])),
    "key": lambda evil: saved(checkpoint(model={"weight": evil})),
}

NO_MODELS = {
    "no model": {"model": None},
    "a list for a model": {"model": []},
    "a text for a model": {"model": WEIGHT},
    "no parameters": {"model": {}},
    "a number for a tensor": {"model": {WEIGHT: 3.5}},
    "a list for a tensor": {"model": {WEIGHT: [[1.0, 2.0]]}},
    "no name": {"model": {3: torch.randn(12, 4)}},
    "a scalar": {"model": {WEIGHT: torch.tensor(1.0)}},
    "a cube": {"model": {WEIGHT: torch.randn(12, 4, 2)}},
    "no rows": {"model": {WEIGHT: torch.randn(0, 4)}},
    "no columns": {"model": {WEIGHT: torch.randn(12, 0)}},
    "integers": {"model": {WEIGHT: torch.ones(12, 4, dtype=torch.int64)}},
    "complex numbers": {"model": {WEIGHT: torch.ones(12, 4, dtype=torch.complex64)}},
    "sparse": {"model": {WEIGHT: torch.eye(4).to_sparse()}},
    "meta": {"model": {WEIGHT: torch.empty(12, 4, device="meta")}},
    "NaN": {"model": {WEIGHT: torch.full((12, 4), float("nan"))}},
    "infinity": {"model": {WEIGHT: torch.full((12, 4), float("inf"))}},
    "zeros": {"model": {WEIGHT: torch.zeros(12, 4)}},
    "tied to a number": {"model": {WEIGHT: torch.randn(12, 4), "decoder.embed_tokens.weight": 3}},
    "tied to another dtype": {
        "model": {WEIGHT: torch.randn(12, 4), "decoder.embed_tokens.weight": torch.ones(12, 4, dtype=torch.int64)}
    },
    "a text for options": {"cfg": "task"},
    "a number for options": {"cfg": 7},
    "a list for options": {"cfg": [1]},
    "a tensor for options": {"cfg": torch.zeros(3)},
    "a tensor beside args": {"cfg": torch.zeros(3), "args": Namespace(task="language_modeling", arch="transformer_lm")},
    "a tensor for a task": {"cfg": {**OPTIONS, "task": torch.zeros(3)}},
    "no options": {"cfg": {"other": {}}},
    "a number for a task": {"cfg": {"task": 7, "model": 7, "criterion": 7}},
    "nothing for a task": {"cfg": {"task": None, "model": None, "criterion": None}},
    "a text for tokens": {"cfg": {**OPTIONS, "task": {"_name": "language_modeling", "tokens_per_sample": "many"}}},
    "an unknown task": {"cfg": {**OPTIONS, "task": {"_name": "../../etc"}}},
    "a dictionary for args": {"cfg": None, "args": {"task": "language_modeling"}},
    "a number for args": {"cfg": None, "args": 7},
    "empty args": {"cfg": None, "args": Namespace()},
    "a text for a history": {"optimizer_history": "long"},
    "numbers for a history": {"optimizer_history": [1, 2]},
    "a text for updates": {"optimizer_history": [{"num_updates": "many"}]},
    "infinitely many updates": {"optimizer_history": [{"num_updates": float("inf")}]},
    "a text for the rest": {"extra_state": "state"},
    "a number for the data": {"extra_state": {"train_iterator": 3}},
    "a text for an epoch": {"extra_state": {"train_iterator": {"epoch": "first"}}},
}


@pytest.fixture
def place(tmp_path, lm_data):
    """Where a hostile checkpoint goes, and every command that reads it."""
    run = tmp_path / "run"
    run.mkdir()
    path, good, output = run / "checkpoint_best.pt", run / "good.pt", tmp_path / "out"
    good.write_bytes(saved(checkpoint()))
    (tmp_path / "pairs").write_text("w1\tw2\t1\nw3\tw4\t2\n")
    (tmp_path / "links").write_text("0-0\n")
    data = ("--data", lm_data)
    return path, {
        "eval-lm": ("eval-lm", lm_data, "--path", path, "--json", output),
        "generate-lm": ("generate-lm", lm_data, "--path", path, "--output", output),
        "isotropy": ("isotropy", path, "--json", output),
        "isotropy, groups": ("isotropy", path, *data, "--json", output),
        "neighbors": ("neighbors", path, *data, "--json", output),
        "align-sim": ("align-sim", path, *data, "--alignments", tmp_path / "links", "--json", output),
        "word-similarity": ("word-similarity", path, *data, "--datasets", tmp_path / "pairs", "--json", output),
        "convert-to-f2": ("convert-to-f2", "--path", path, *data, "--output", output),
        "average-checkpoints": ("average-checkpoints", path, good, "--output", output),
        "report": ("report", run, *data, "--output", tmp_path / "out.html"),
        "plot projection": ("plot", "projection", path, *data, "--output", tmp_path / "out.png"),
        "plot singular-values": ("plot", "singular-values", path, "--output", tmp_path / "out.png"),
        "plot isotropy": ("plot", "isotropy", run, *data, "--output", tmp_path / "out.png"),
        "plot similarity": ("plot", "similarity", path, *data, "--words", "w1", "--output", tmp_path / "out.png"),
    }  # fmt: skip


COMMANDS = (
    "eval-lm", "generate-lm", "isotropy", "isotropy, groups", "neighbors", "align-sim", "word-similarity",
    "convert-to-f2", "average-checkpoints", "report", "plot projection", "plot singular-values", "plot isotropy",
    "plot similarity",
)  # fmt: skip


def said(capsys, command):
    """The status of a command, and the one line that it says where that is 2."""
    status = main([str(argument) for argument in command])
    err = capsys.readouterr().err
    assert status == 0 or (status == 2 and len(err.splitlines()) == 1 and "Traceback" not in err), err
    return status, err


@pytest.mark.grid(3)
@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_runs_what_a_checkpoint_says(name, place, tmp_path, capsys):
    path, commands = place
    before = set(tmp_path.rglob("*")) | {path}
    for kind, made in RUNNING_CODE.items():
        for evil in (Evil(tmp_path / "marker"), EvilCode(tmp_path / "marker")):
            path.write_bytes(made(evil))
            status, err = said(capsys, commands[name])
            assert status == 2 and str(path) in err, (kind, err)
            assert set(tmp_path.rglob("*")) == before, kind


def refused_training(data, *options):
    """The one line of a training that ends with status 2."""
    import agg_fairseq.criterions  # noqa: F401 — registers them

    status, _, _, err = call(
        "train", data, "--user-dir", ROOT / "agg_fairseq", *SMALL_LM, "--criterion", "agg", "--no-save", *options
    )
    assert status == 2 and len(err.splitlines()) == 1 and err.startswith("agg-fairseq: error: "), err
    return err


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--restore-file", "--finetune-from-model"])
def test_no_training_runs_what_a_checkpoint_says(option, lm_data, tmp_path):
    path = tmp_path / "hostile.pt"
    for kind, made in RUNNING_CODE.items():
        path.write_bytes(made(Evil(tmp_path / "marker")))
        assert str(path) in refused_training(lm_data, option, path, "--save-dir", tmp_path / "run"), kind
        assert not (tmp_path / "marker").exists(), kind


NO_TRAININGS = (
    "no model", "a list for a model", "no name", "a text for options", "a text for a history", "numbers for a history",
    "a text for the rest", "a number for the data", "a text for an epoch",
)  # fmt: skip


@pytest.mark.slow
def test_no_training_starts_from_what_is_no_checkpoint(lm_data, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    for kind in NO_TRAININGS:
        (folder / "checkpoint_last.pt").write_bytes(saved(checkpoint(**NO_MODELS[kind])))
        assert "checkpoint_last.pt" in refused_training(lm_data, "--save-dir", folder), kind


@pytest.mark.grid(2)
@pytest.mark.parametrize("name", COMMANDS)
def test_what_is_no_model_is_refused_in_one_line(name, place, capsys):
    path, commands = place
    for kind, parts in NO_MODELS.items():
        path.write_bytes(saved(checkpoint(**parts)))
        try:
            said(capsys, commands[name])
        except Exception as error:
            raise AssertionError(f"{kind}: {type(error).__name__}: {error}") from error


def check(content, valid, path):
    """The parameters are those that torch reads of the bytes in memory, where a command maps the file.

    Where torch refuses the bytes, such as for a wrong length in the directory of the zip, they are those of the valid
    file.
    """
    path.write_bytes(content)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        said, found = refusal(Checkpoint, path)
        if said is None:
            try:
                expected = torch.load(io.BytesIO(content), weights_only=True)["model"]
            except Exception:
                expected = torch.load(io.BytesIO(valid), weights_only=True)["model"]
            torch.testing.assert_close(found.parameters, expected, rtol=0, atol=0, equal_nan=True)


FORMATS = {"zip": {}, "legacy": {"_use_new_zipfile_serialization": False}}


@pytest.mark.parametrize("name", FORMATS)
def test_a_damaged_checkpoint_is_read_or_refused_in_one_line(name, tmp_path):
    valid = saved(checkpoint(), **FORMATS[name])
    FEW(given(damaged(valid))(lambda content: check(content, valid, tmp_path / "checkpoint.pt")))()


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_many_damaged_checkpoints_are_read_or_refused_in_one_line(name, tmp_path):
    valid = saved(checkpoint(), **FORMATS[name])
    MORE(given(damaged(valid))(lambda content: check(content, valid, tmp_path / "checkpoint.pt")))()
