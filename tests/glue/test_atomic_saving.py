"""Checkpoints and what the commands write: whole or not there."""

import contextlib
import os
import resource
import sys

import pytest
import torch

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


def copy(link):
    AtomicPathManager.copy(str(link.parents[1] / "source"), str(link), overwrite=True)


def interrupted(path):
    path.write_text("half")
    raise KeyboardInterrupt


def command(write):
    return lambda link: atomic_write(link, write)


@pytest.mark.parametrize(
    ("write", "errors"),
    [
        (copy, OSError),
        (command(lambda path: path.write_text("x" * 40_000)), UserError),
        (command(lambda path: torch.save(torch.zeros(4_000), path)), (RuntimeError, UserError)),
        (command(interrupted), KeyboardInterrupt),
    ],
    ids=["copy", "text", "checkpoint", "interrupted"],
)
def test_what_cannot_be_written_leaves_the_old_file(write, errors, tmp_path):
    """A link stays, and leads to the new file."""
    target, link = tmp_path / "folder" / "file", tmp_path / "folder" / "link"
    target.parent.mkdir()
    target.write_text("old")
    link.symlink_to(target)
    (tmp_path / "source").write_bytes(b"new" * 9_000)
    with full_disk(after=4_000), pytest.raises(errors):
        write(link)
    assert target.read_text() == "old" and link.is_symlink()
    if errors is not KeyboardInterrupt:
        write(link)
        assert target.stat().st_size > 4_000 and link.is_symlink()
    assert sorted(os.listdir(target.parent)) == ["file", "link"]


def test_a_folder_that_cannot_be_made():
    with pytest.raises(UserError, match="cannot write"):
        atomic_write(__file__ + "/file", interrupted)
