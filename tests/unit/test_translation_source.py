"""Where the text comes from: folders of the user, and archives of WMT's layout from mirrors that are files."""

import dataclasses
import hashlib

import pytest

from agg_fairseq.errors import UserError
from scripts.data import translation_source
from scripts.data.translation_source import ARCHIVES, DEV, EUROPARL, TEST, downloaded, given
from tests.wmt_archives import LANGUAGES, TEXTS, sentences, write_archives


def contents(splits):
    """By split and language, the lines."""
    return {
        split: [[line for text in texts for line in getattr(text, side).lines()] for side in ("source", "target")]
        for split, texts in splits.items()
    }


EXPECTED = {split: [sentences(split, language) for language in LANGUAGES] for split in TEXTS}


def test_archives_that_are_given(tmp_path, capsys):
    """All of the five, whose digests are not WMT's: a warning for each, with all digests that were expected."""
    source = given(write_archives(tmp_path / "archives"))
    assert source.corpus == "wmt14_en_de" and list(source.settings) == list(ARCHIVES)
    assert source.settings[DEV] == hashlib.sha256((tmp_path / "archives" / DEV).read_bytes()).hexdigest()
    assert contents(source.splits()) == EXPECTED
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 5 and all("is not WMT's: found the " in line for line in said)
    assert sum("warning: training-parallel-" in line for line in said) == 3 and f"warning: {TEST}" in said[-1]
    assert said[3].count("MD5") == 2 and said[3].count("SHA-256") == 3
    assert not source.is_official


def test_plain_text_comes_first(tmp_path):
    """It is known by its own content, wherever it lies."""
    write_archives(tmp_path / "mine")
    for split in ("train", "valid", "test"):
        for language in ("en", "de"):
            (tmp_path / "mine" / f"{split}.{language}").write_text(f"{split} {language}\n")
    source = given(tmp_path / "mine")
    assert source.corpus == "mine" and source.settings["valid.de"] == hashlib.sha256(b"valid de\n").hexdigest()
    assert contents(source.splits()) == {split: [[f"{split} en"], [f"{split} de"]] for split in EXPECTED}


def test_something_is_missing(tmp_path):
    write_archives(tmp_path / "archives")
    (tmp_path / "archives" / DEV).unlink()
    (tmp_path / "archives" / "train.en").touch()
    with pytest.raises(UserError, match=r"found no train\.de, valid\.en, .*, nor dev\.tgz; expected the six texts"):
        given(tmp_path / "archives")


@pytest.fixture
def mirrors(tmp_path, monkeypatch):
    """Archives of ours in the place of WMT's, with their digests, behind a mirror that is gone."""
    folder = write_archives(tmp_path / "mirror")
    ours = {}
    for name, archive in ARCHIVES.items():
        content = (folder / name).read_bytes()
        digests = [hashlib.new("md5" if len(one) == 32 else "sha256", content).hexdigest() for one in archive.digests]
        urls = [(tmp_path / "gone" / name).as_uri(), (folder / name).as_uri()]
        ours[name] = dataclasses.replace(archive, mirrors=urls, bytes=len(content), digests=digests)
    monkeypatch.setattr(translation_source, "ARCHIVES", ours)
    return ours


def test_archives_that_are_downloaded(tmp_path, mirrors):
    source = downloaded(tmp_path / "downloads")
    assert not (tmp_path / "downloads").exists()
    assert all(line.startswith("download ") and line.count("file://") == 2 for line in source.plan)
    assert contents(source.splits()) == EXPECTED
    assert sorted(path.name for path in (tmp_path / "downloads").iterdir()) == sorted(ARCHIVES)
    assert all(line.startswith("have ") for line in downloaded(tmp_path / "downloads").plan)


@pytest.mark.parametrize("name", [EUROPARL, DEV, TEST])
def test_another_file_than_it_should_be(tmp_path, mirrors, name):
    """By SHA-256 or MD5, whichever is known."""
    downloads = write_archives(tmp_path / "downloads")
    (downloads / name).write_bytes((downloads / name).read_bytes() + b"x")
    with pytest.raises(UserError, match=rf"{name}: found the (SHA-256|MD5) .*; remove the file and run it again"):
        downloaded(downloads).splits()


def test_another_file_at_a_mirror(tmp_path, mirrors):
    """By MD5, or by all of several digests: the next mirror is asked."""
    for name in (TEST, DEV):
        (tmp_path / "gone").mkdir(exist_ok=True)
        (tmp_path / "gone" / name).write_text("<html>log in first")
    assert contents(downloaded(tmp_path / "downloads").splits()) == EXPECTED


def test_archives_that_are_given_and_official(tmp_path, mirrors, capsys):
    folder = write_archives(tmp_path / "mine")
    for name in ARCHIVES:
        (folder / name).write_bytes((tmp_path / "mirror" / name).read_bytes())
    assert given(folder).is_official and not capsys.readouterr().err
    assert downloaded(tmp_path / "downloads").is_official
    (folder / TEST).write_bytes((folder / TEST).read_bytes() + b"x")
    assert not given(folder).is_official and TEST in capsys.readouterr().err


def test_mirrors_that_are_gone(tmp_path, mirrors):
    (tmp_path / "mirror" / DEV).unlink()
    with pytest.raises(UserError, match=r"could not download dev\.tgz"):
        downloaded(tmp_path / "downloads").splits()
