import contextlib
import hashlib
import json
import sys

import pytest

from agg_fairseq.errors import UserError
from scripts.data.prepared_folder import binarize, prepare_folder

SETTINGS = {"corpus": "some", "sizes": (1, 2)}


def prepare(folder, settings=SETTINGS, fails=False):
    """Two stages, of which the second one may fail; returns what was made."""
    made = []

    def first(partial):
        (partial / "a").write_text("one\ntwo\n")
        made.append("first")

    def second(partial):
        (partial / "b").write_text((folder / "first" / "a").read_text())
        if fails:
            raise UserError("no")
        made.append("second")

    def finish():
        return {"dictionary": 7}, ["second/b", "first/a"]

    prepare_folder("prepare", folder, settings, {"first": first, "second": second}, finish)
    return made


def test_a_run_that_failed_goes_on_and_a_complete_folder_is_left_alone(tmp_path, capsys):
    folder = tmp_path / "new" / "folder"
    with pytest.raises(UserError):
        prepare(folder, fails=True)
    assert not (folder / "second").exists() and (folder / ".second.partial" / "b").exists()
    (folder / ".second.partial" / "c").write_text("half")
    assert prepare(folder) == ["second"]
    digest = hashlib.sha256(b"one\ntwo\n").hexdigest()
    assert json.loads((folder / "manifest.json").read_text()) == {
        "dictionary": 7,
        "settings": {"corpus": "some", "sizes": [1, 2]},
        "files": {name: {"lines": 2, "sha256": digest} for name in ("first/a", "second/b")},
    }
    assert [path.name for path in (folder / "second").iterdir()] == ["b"]
    (folder / "first" / "a").unlink()  # what is not needed any more may go
    assert prepare(folder) == [] and f"{folder} is complete" in capsys.readouterr().out


@pytest.mark.parametrize("fails", [False, True])
def test_other_settings_are_refused(tmp_path, fails):
    """Of a folder that is complete, or left in the middle."""
    with pytest.raises(UserError) if fails else contextlib.nullcontext():
        prepare(tmp_path, fails=fails)
    for settings in ({**SETTINGS, "sizes": [1]}, {"corpus": "some"}):
        with pytest.raises(UserError, match=r"other settings \({'sizes': \[1, 2\]}\); remove it"):
            prepare(tmp_path, settings)


def test_a_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "first").mkdir()
    with pytest.raises(UserError, match="was prepared with other settings"):
        prepare(tmp_path)


def test_fairseq_preprocess_fails(tmp_path, monkeypatch):
    """Only the last line that it printed is told."""
    program = tmp_path / "fairseq-preprocess"
    program.write_text("#!/bin/sh\necho Traceback >&2\necho ValueError: no >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(UserError, match=rf"fairseq-preprocess failed, writing {tmp_path}/bin \(ValueError: no\);"):
        binarize(tmp_path / "text", tmp_path / "bin", 1, [])
