"""Checkpoints and what the commands write: whole or not there."""

import contextlib
import os
import resource
import sys
import zlib

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.file_io import PathManager
from matplotlib.figure import Figure

import agg_fairseq.fairseq_plugin.criterions  # noqa: F401 — registers them
from agg_fairseq.errors import UserError
from agg_fairseq.fairseq_plugin.atomic_saving import AtomicPathManager, write_checkpoints_atomically
from agg_fairseq.files import atomic_write
from agg_fairseq.plots.style import save


@contextlib.contextmanager
def on_a_full_disk(after):
    """Within, no file can become longer than `after` bytes: writing ends as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # Python ignores the signal that comes with it
    resource.setrlimit(resource.RLIMIT_FSIZE, (after, hard))
    written, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # a cut .pyc would last
    try:
        yield
    finally:
        sys.dont_write_bytecode = written
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture(autouse=True)
def _stock(monkeypatch):
    monkeypatch.setattr(checkpoint_utils, "PathManager", PathManager)


def test_a_copy_takes_the_place_of_the_old_file_only_when_complete(tmp_path):
    source, target = tmp_path / "checkpoint_1_2.pt", tmp_path / "checkpoint_last.pt"
    source.write_bytes(b"new" * 9_000)
    target.write_bytes(b"old")
    with on_a_full_disk(after=5_000), pytest.raises(OSError, match="File too large"):
        AtomicPathManager.copy(str(source), str(target), overwrite=True)
    assert target.read_bytes() == b"old"
    assert AtomicPathManager.copy(str(source), str(target), overwrite=True)
    assert target.read_bytes() == source.read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["checkpoint_1_2.pt", "checkpoint_last.pt"]


def test_a_copy_onto_a_link_goes_where_it_leads(tmp_path):
    """As fairseq's, which writes into the file that is there."""
    elsewhere, link = tmp_path / "elsewhere", tmp_path / "checkpoint_last.pt"
    elsewhere.mkdir()
    (elsewhere / "kept.pt").write_bytes(b"old")
    link.symlink_to(elsewhere / "kept.pt")
    (tmp_path / "checkpoint_1_2.pt").write_bytes(b"new")
    assert AtomicPathManager.copy(str(tmp_path / "checkpoint_1_2.pt"), str(link), overwrite=True)
    assert link.is_symlink()
    assert os.listdir(elsewhere) == ["kept.pt"]
    assert link.read_bytes() == b"new"


def test_contents_reach_the_disk_before_the_name(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: calls.append("fsync"))
    monkeypatch.setattr(os, "replace", lambda src, dst: calls.append("replace"))
    write_checkpoints_atomically()
    checkpoint_utils.torch_persistent_save({"model": 1}, str(tmp_path / "checkpoint_1_2.pt"))
    assert calls == ["fsync", "replace"]


def picture(path):
    figure = Figure()
    figure.subplots().plot(range(3000), torch.rand(3000))
    save(figure, path, "pdf")


WRITERS = {
    "text": lambda path: path.write_text("x" * 40_000),
    "checkpoint": lambda path: torch.save({"a": torch.zeros(4_000)}, path),
    "PDF": picture,
}


@pytest.mark.parametrize("name", WRITERS)
def test_what_a_command_cannot_write_leaves_the_old_file(name, tmp_path):
    target = tmp_path / "file"
    target.write_text("old")
    with on_a_full_disk(after=4_000), pytest.raises((UserError, RuntimeError, zlib.error)):
        atomic_write(target, WRITERS[name])
    assert target.read_text() == "old" and list(tmp_path.iterdir()) == [target]
