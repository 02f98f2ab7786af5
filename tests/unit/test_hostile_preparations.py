"""Damaged files of corpora as they are published, and of what the scripts have written."""

import io
import json
from types import SimpleNamespace

import pyarrow
import pytest
from hypothesis import given
from pyarrow import parquet

from scripts.data.prepared_folder import is_complete, is_made
from scripts.data.text_files import _decoded, sgm_segments
from scripts.data.wikitext_source import EMPTY_LINE
from scripts.data.wikitext_source import _lines as parquet_lines
from scripts.experiments.corpora import _prepared
from scripts.experiments.training import check_settings, settings_of
from tests.hostile import FEW, MORE, damaged, refusal

ROWS = ["", " = A title = \n", " a line\n", " caf\u00e9 \u2028 \n", ""] * 3


def written_parquet():
    file = io.BytesIO()
    parquet.write_table(pyarrow.table({"text": ROWS}), file, write_page_checksum=True)
    return file.getvalue()


def check_parquet(found):
    assert found == [row or EMPTY_LINE for row in ROWS]


SGML = b'<doc><seg id="1">a &amp; b</seg>\n<seg id="2">two\nlines &lt;</seg><SEG>c</SEG></doc>\n'


def segments(path):
    return sgm_segments(_decoded(path.read_bytes(), "a file"))


def check_sgml(content, found):
    """By a scan for the tags."""
    text, expected, place = content.decode(), [], 0
    small = text.lower()
    while (start := small.find("<seg", place)) >= 0:
        opened, after = small.find(">", start), small[start + 4 : start + 5]
        if after.isalnum() or after == "_" or opened < 0:
            place = start + 4
            if opened < 0:
                break
            continue
        closed = small.find("</seg>", opened)
        if closed < 0:
            break
        inner = text[opened + 1 : closed]
        for entity, character in (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&apos;", "'"), ("&amp;", "&")):
            inner = inner.replace(entity, character)
        expected.append(" ".join(inner.split()))
        place = closed + 6
    assert found == expected


SETTINGS = {"corpus": "some", "merges": 6, "lines": [1, 2]}
MANIFEST = json.dumps({"settings": SETTINGS, "bpe": {"kind": "words"}, "files": {}}).encode()
WORKSPACE = SimpleNamespace(scale="tiny", seed=1, dry=True, overrides=(), train=False, data=None)
MODEL = SimpleNamespace(config="wikitext103/agg-mle", overrides=("a=1",), scaled={}, corpus=None)


def complete(path):
    (path.parent / "manifest.json").write_bytes(path.read_bytes())
    return is_complete(path.parent, SETTINGS)


def made(path):
    (path.parent / "settings.json").write_bytes(path.read_bytes())
    return is_made(path.parent, SETTINGS)


def trained(path):
    """A folder with a model of the same settings."""
    (path.parent / "settings.json").write_bytes(path.read_bytes())
    (path.parent / "checkpoint_last.pt").touch()
    return check_settings(SimpleNamespace(**vars(WORKSPACE), folder=lambda model: path.parent), MODEL)


def prepared(path):
    (path.parent / "manifest.json").write_bytes(path.read_bytes())
    workspace = SimpleNamespace(**{**vars(WORKSPACE), "dry": False})
    return _prepared(workspace, SimpleNamespace(options=None), path.parent).manifest


class Case:
    """A file that is taken, its reader, and what has to hold of the bytes and of what was read of them."""

    def __init__(self, valid, read, check):
        self.valid, self.read, self.check = valid, read, check


def equals(expected):
    def check(content, found):
        assert found == expected

    return check


CASES = {
    "SGML": Case(SGML, segments, check_sgml),
    "manifest": Case(MANIFEST, complete, lambda content, _: equals(SETTINGS)(None, json.loads(content)["settings"])),
    "settings": Case(json.dumps(SETTINGS).encode(), made, lambda content, _: equals(SETTINGS)(0, json.loads(content))),
    "settings of a reproduction": Case(
        json.dumps(settings_of(WORKSPACE, MODEL)).encode(),
        trained,
        lambda content, _: equals(settings_of(WORKSPACE, MODEL))(0, json.loads(content)),
    ),
    "manifest of a reproduction": Case(
        MANIFEST, prepared, lambda content, found: equals(json.loads(content))(0, found)
    ),
}
"""Cheap to read: a few with the quick tests too."""
SLOW_CASES = {
    "parquet": Case(written_parquet, lambda path: list(parquet_lines(path)), lambda _, found: check_parquet(found)),
}


def check_damaged_files(case, amount, folder):
    """Asserts for the file of a case, whole and damaged: it is read right, or `refusal` finds one line."""
    path = folder / "file"
    valid = case.valid() if callable(case.valid) else case.valid

    def check(content):
        path.write_bytes(content)
        said, found = refusal(case.read, path)
        if said is None:
            case.check(content, found)

    check(valid)
    amount(given(damaged(valid))(check))()


@pytest.mark.parametrize("name", CASES)
def test_a_damaged_file_is_read_right_or_refused_in_one_line(name, tmp_path):
    check_damaged_files(CASES[name], FEW, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*CASES, *SLOW_CASES])
def test_more_damaged_files_are_read_right_or_refused_in_one_line(name, tmp_path):
    check_damaged_files({**CASES, **SLOW_CASES}[name], MORE, tmp_path)
