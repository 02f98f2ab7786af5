"""The files of checkpoints: whole or not there, and what a killed training leaves of them."""

import os
import shutil

import pytest
from fairseq import checkpoint_utils
from fairseq.file_io import PathManager

from agg_fairseq.criterions.whole_checkpoints import WholePathManager, write_checkpoints_whole


@pytest.fixture(autouse=True)
def _stock(monkeypatch):
    monkeypatch.setattr(checkpoint_utils, "PathManager", PathManager)


def test_a_copy_takes_the_place_of_the_old_file_only_when_complete(tmp_path, monkeypatch):
    source, target = tmp_path / "checkpoint_1_2.pt", tmp_path / "checkpoint_last.pt"
    source.write_bytes(b"new")
    target.write_bytes(b"old")
    seen = []

    def replace(src, dst):
        seen.append((open(src, "rb").read(), open(dst, "rb").read()))
        os.rename(src, dst)

    monkeypatch.setattr(os, "replace", replace)
    assert WholePathManager.copy(str(source), str(target), overwrite=True)
    assert seen == [(b"new", b"old")] and target.read_bytes() == b"new"
    assert sorted(os.listdir(tmp_path)) == ["checkpoint_1_2.pt", "checkpoint_last.pt"]


def test_a_copy_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    target = tmp_path / "checkpoint_last.pt"
    target.write_bytes(b"old")

    def full(source, copy):
        open(copy, "wb").write(b"ne")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(OSError, match="No space"):
        WholePathManager.copy(str(tmp_path / "checkpoint_1_2.pt"), str(target), overwrite=True)
    assert target.read_bytes() == b"old"


def test_contents_reach_the_disk_before_the_name(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: calls.append("fsync"))
    monkeypatch.setattr(os, "replace", lambda src, dst: calls.append("replace"))
    write_checkpoints_whole(tmp_path)
    checkpoint_utils.torch_persistent_save({"model": 1}, str(tmp_path / "checkpoint_1_2.pt"))
    assert calls == ["fsync", "replace"]


def test_other_file_systems_go_through_unchanged(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(PathManager, "supports_rename", lambda path: not path.startswith("other://"))
    monkeypatch.setattr(PathManager, "copy", lambda *paths, overwrite: asked.append((*paths, overwrite)))
    WholePathManager.copy(str(tmp_path / "a.pt"), "other://b.pt", overwrite=True)
    assert asked == [(str(tmp_path / "a.pt"), "other://b.pt", True)]


def test_only_the_first_worker_removes_and_only_unfinished_checkpoints(tmp_path, monkeypatch):
    kept = {"checkpoint_last.pt", "model.pt.tmp", "notes.tmp", "checkpoint_1_2.pt.tmp.bak", "checkpoints"}
    left = {"checkpoint_1_2.pt.tmp", "checkpoint.best_loss_2.150.pt.tmp", "checkpoint_last-shard0.pt.tmp"}
    for name in kept | left:
        (tmp_path / name).touch()
    monkeypatch.setattr("agg_fairseq.criterions.whole_checkpoints.is_first_worker", lambda: False)
    write_checkpoints_whole(tmp_path)
    assert set(os.listdir(tmp_path)) == kept | left
    monkeypatch.setattr("agg_fairseq.criterions.whole_checkpoints.is_first_worker", lambda: True)
    write_checkpoints_whole(tmp_path)
    assert set(os.listdir(tmp_path)) == kept
    write_checkpoints_whole(tmp_path / "not yet there")


def test_no_pattern_of_fairseq_takes_an_unfinished_file_for_a_checkpoint(tmp_path):
    for name in ("checkpoint3.pt.tmp", "checkpoint_1_2.pt.tmp", "checkpoint.best_loss_2.15.pt.tmp"):
        (tmp_path / name).touch()
    for pattern in (r"checkpoint(\d+)\.pt", r"checkpoint_\d+_(\d+)\.pt", r"checkpoint\.best_loss_(\d+\.?\d*)\.pt"):
        assert checkpoint_utils.checkpoint_paths(str(tmp_path), pattern=pattern) == []
