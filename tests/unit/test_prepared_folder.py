"""What says that a folder is complete, or a stage of it made."""

import hashlib
import json

import pytest

from agg_fairseq.errors import UserError
from scripts.data.prepared_folder import explained_if_lost, is_complete, is_made, stage, write_manifest

SETTINGS = {"corpus": "some", "merges": 6}


def test_written_and_found(tmp_path):
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "b").write_text("one\ntwo\n")
    (tmp_path / "a").write_text("")
    assert not is_complete(tmp_path, SETTINGS)
    write_manifest(tmp_path, SETTINGS, {"dictionary": 7}, [tmp_path / "text" / "b", tmp_path / "a"])
    assert is_complete(tmp_path, SETTINGS)
    assert json.loads((tmp_path / "manifest.json").read_text()) == {
        "dictionary": 7,
        "settings": SETTINGS,
        "files": {
            "a": {"lines": 0, "sha256": hashlib.sha256(b"").hexdigest()},
            "text/b": {"lines": 2, "sha256": hashlib.sha256(b"one\ntwo\n").hexdigest()},
        },
    }


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({**SETTINGS, "merges": 7}, r"other settings \(\{'merges': 6\}\)"),
        ({**SETTINGS, "from": "x"}, r"other settings \(\{'from': None\}\)"),
        ({"corpus": "some"}, r"other settings \(\{'merges': 6\}\)"),
    ],
)
def test_other_settings(tmp_path, settings, said):
    write_manifest(tmp_path, SETTINGS, {}, [])
    with pytest.raises(UserError, match=said):
        is_complete(tmp_path, settings)


@pytest.mark.parametrize("content", ["", "[]", "{}", '"x"', "{"])
def test_other_files(tmp_path, content):
    (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(UserError, match="found no manifest of this script; name another folder"):
        is_complete(tmp_path, SETTINGS)


@pytest.mark.parametrize("settings", ["5", "null", '"x"', "[1]"])
def test_settings_that_are_none(tmp_path, settings):
    """In the manifest, and in a stage's folder."""
    (tmp_path / "manifest.json").write_text(f'{{"settings": {settings}}}')
    with pytest.raises(UserError, match="found the settings .*; expected those of this script; remove it or name"):
        is_complete(tmp_path, SETTINGS)
    (tmp_path / "settings.json").write_text(settings)
    with pytest.raises(UserError, match="found the settings .*; expected those of this script; remove it or name"):
        is_made(tmp_path, SETTINGS)


def test_a_stage_is_made_once(tmp_path):
    folder = tmp_path / "text"
    assert not is_made(folder, SETTINGS)
    made = [stage(folder, SETTINGS, lambda partial: (partial / "a").write_text("a")) for _ in range(2)]
    assert made == [True, False] and is_made(folder, SETTINGS)
    with pytest.raises(UserError, match=r"other settings \(\{'merges': 6\}\); remove it"):
        is_made(folder, {"corpus": "some"})
    (folder / "settings.json").unlink()
    with pytest.raises(UserError, match=r"text: found no settings.json in it, .*; remove it or name another"):
        stage(folder, SETTINGS, lambda partial: None)


def test_a_file_of_a_stage_is_lost(tmp_path):
    """The message says which folder to remove; of other files, nothing is known."""
    stage(tmp_path / "text", SETTINGS, lambda partial: (partial / "a").write_text("a"))
    (tmp_path / "text" / "a").unlink()
    with pytest.raises(UserError, match=f"found no .*/text/a; .* remove the folder {tmp_path / 'text'} and run it"):
        with explained_if_lost():
            stage(tmp_path / "next", SETTINGS, lambda partial: (tmp_path / "text" / "a").read_text())
    with pytest.raises(FileNotFoundError), explained_if_lost():
        (tmp_path / "elsewhere").read_text()
