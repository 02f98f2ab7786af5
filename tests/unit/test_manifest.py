"""The file that says that a folder is complete."""

import hashlib
import json

import pytest

from agg_fairseq.errors import UserError
from scripts.data.manifest import is_complete, write_manifest

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
