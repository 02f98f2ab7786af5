"""Damaged files of corpora as they are published, and of what the scripts have written."""

import io
import json

import pyarrow
import pytest
from hypothesis import given
from pyarrow import parquet

from scripts.data.prepared_folder import prepare_folder
from scripts.data.text_files import Text
from scripts.data.wikitext_source import EMPTY_LINE, _rows
from scripts.experiments.corpora import _prepared
from scripts.experiments.experiment import Corpus, Model, Workspace
from scripts.experiments.training import check_settings, settings_of
from tests.hostile import FEW, damaged, fuzzing, refusal

ROWS = ["", " = A title = \n", " a line\n", " caf\u00e9 \u2028 \n", ""] * 3
SETTINGS = {"corpus": "some", "merges": 6, "lines": [1, 2]}
MANIFEST = {"settings": SETTINGS, "bpe": {"kind": "words"}, "files": {}}
MODEL = Model("m", "cures/mle", Corpus("c", ("p",), "words"), ("a=1",))


def written_parquet():
    file = io.BytesIO()
    parquet.write_table(pyarrow.table({"text": ROWS}), file, write_page_checksum=True)
    return file.getvalue()


def prepare(path, name):
    """A folder that is complete, or has been left in the middle, with these settings."""
    for left in (path.parent / "manifest.json", path.parent / "settings.json"):
        left.unlink(missing_ok=True)
    path.rename(path.parent / name)
    prepare_folder("prepare", path.parent, SETTINGS, {}, lambda: ({}, []))


def trained(path):
    """A folder with a model of the same settings."""
    path.rename(path.parent / "settings.json")
    (path.parent / "done").touch()
    check_settings(Workspace("tiny", path.parents[1], dry=True), MODEL)


def prepared(path):
    path.rename(path.parent / "manifest.json")
    return _prepared(Workspace("tiny", path.parent, train=False), MODEL.corpus, path.parent).manifest


def same(expected):
    """The bytes say this, as JSON."""
    return lambda content, found: json.loads(content) == expected


CASES = {
    "text": (b"one\n\xc3\xbc \xe2\x80\xa8two\r\n\nend", lambda path: list(Text(path).lines()),
             lambda content, found: "".join("".join(found).split()) == "".join(content.decode("utf-8-sig").split())),
    "manifest": (json.dumps(MANIFEST).encode(), lambda path: prepare(path, "manifest.json"),
                 lambda content, found: json.loads(content)["settings"] == SETTINGS),
    "settings": (json.dumps(SETTINGS).encode(), lambda path: prepare(path, "settings.json"), same(SETTINGS)),
    "settings of a model": (
        json.dumps(settings_of(Workspace("tiny", None, dry=True), MODEL)).encode(), trained,
        same(settings_of(Workspace("tiny", None, dry=True), MODEL)),
    ),
    "manifest of a model": (
        json.dumps(MANIFEST).encode(), prepared, lambda content, found: json.loads(content) == found,
    ),
    "parquet": (written_parquet(), lambda path: list(_rows(path)),
                lambda content, found: found == [row or EMPTY_LINE for row in ROWS]),
}  # fmt: skip
"""A file that is taken, its reader, and what has to hold of the bytes and of what was read of them."""


@pytest.mark.parametrize("amount", [FEW, pytest.param(fuzzing(500), marks=pytest.mark.slow)], ids=["few", "more"])
@pytest.mark.parametrize("name", CASES)
def test_a_damaged_file_is_read_right_or_refused_in_one_line(name, amount, tmp_path):
    valid, read, holds = CASES[name]
    path = tmp_path / "m" / "file"
    path.parent.mkdir()

    def check(content):
        path.write_bytes(content)
        said, found = refusal(read, path)
        if said is None:
            assert holds(content, found), (content, found)

    check(valid)
    amount(given(damaged(valid))(check))()
