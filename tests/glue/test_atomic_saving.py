"""Checkpoints and what the commands write: whole or not there."""

import contextlib
import os
import resource
import sys

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.file_io import PathManager

import agg_fairseq.fairseq_plugin.criterions  # noqa: F401 — registers them
from agg_fairseq.errors import UserError
from agg_fairseq.fairseq_plugin.atomic_saving import AtomicPathManager
from agg_fairseq.files import atomic_write


@contextlib.contextmanager
def full_disk(after):
    """Within, no file can become longer than `after` bytes: writing ends as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    written, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # a cut .pyc would last
    # Python ignores the signal that comes with it
    resource.setrlimit(resource.RLIMIT_FSIZE, (after, hard))
    try:
        yield
    finally:
        sys.dont_write_bytecode = written
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture(autouse=True)
def _stock(monkeypatch):
    monkeypatch.setattr(checkpoint_utils, "PathManager", PathManager)


def test_a_copy_replaces_a_file_only_when_complete(tmp_path):
    """Through a link it goes where that leads, as fairseq's."""
    source, target = tmp_path / "checkpoint_1_2.pt", tmp_path / "checkpoint_last.pt"
    elsewhere = tmp_path / "elsewhere" / "kept.pt"
    elsewhere.parent.mkdir()
    source.write_bytes(b"new" * 9_000)
    elsewhere.write_bytes(b"old")
    target.symlink_to(elsewhere)
    with full_disk(after=5_000), pytest.raises(OSError, match="File too large"):
        AtomicPathManager.copy(str(source), str(target), overwrite=True)
    assert elsewhere.read_bytes() == b"old"
    assert AtomicPathManager.copy(str(source), str(target), overwrite=True)
    assert target.is_symlink() and elsewhere.read_bytes() == source.read_bytes()
    assert os.listdir(elsewhere.parent) == ["kept.pt"]


def interrupted(path):
    path.write_text("half")
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("write", "error"),
    [
        (lambda path: path.write_text("x" * 40_000), UserError),
        (lambda path: torch.save({"a": torch.zeros(4_000)}, path), RuntimeError),
        (interrupted, KeyboardInterrupt),
    ],
    ids=["text", "checkpoint", "interrupted"],
)
def test_what_a_command_cannot_write_leaves_the_old_file(write, error, tmp_path):
    target, link = tmp_path / "file", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)
    with full_disk(after=4_000), pytest.raises((error, UserError)):
        atomic_write(link, write)
    assert target.read_text() == "old" and sorted(os.listdir(tmp_path)) == ["file", "link"]
    atomic_write(link, lambda path: path.write_text("new"))
    assert target.read_text() == "new" and link.is_symlink()
    with pytest.raises(UserError, match="cannot write"):
        atomic_write(target / "file", write)
