import hashlib
from itertools import chain

import pytest

from agg_fairseq.errors import UserError
from scripts.data import translation_source
from scripts.data.files import ALGORITHMS, digest
from scripts.data.translation_source import DEV, DIGESTS, EUROPARL, MIRRORS, TEST, downloaded, given
from tests.wmt_archives import TEXTS, sentences, write_archives


def contents(source):
    texts = source.texts()
    return {
        split: [list(chain(*(side.lines() for side in sides))) for sides in zip(*texts[split], strict=True)]
        for split in texts
    }


EXPECTED = {split: [sentences(split, language) for language in ("en", "de")] for split in TEXTS}


def test_plain_text_comes_first_and_is_known_by_its_content(tmp_path):
    write_archives(tmp_path / "mine")
    for split in TEXTS:
        for language in ("en", "de"):
            (tmp_path / "mine" / f"{split}.{language}").write_text(f"{split} {language}\n")
    source = given(tmp_path / "mine")
    assert source.corpus == "mine" and source.settings["valid.de"] == hashlib.sha256(b"valid de\n").hexdigest()
    assert contents(source) == {split: [[f"{split} en"], [f"{split} de"]] for split in TEXTS}


def test_something_is_missing(tmp_path):
    write_archives(tmp_path / "archives")
    (tmp_path / "archives" / DEV).unlink()
    (tmp_path / "archives" / "train.en").touch()
    with pytest.raises(UserError, match=r"found no train\.de, valid\.en, .*, nor dev\.tgz; expected all of one kind"):
        given(tmp_path / "archives")


@pytest.fixture
def mirrors(tmp_path, monkeypatch):
    """Archives of ours in the place of WMT's, with their digests of the same kinds, behind a mirror that is gone."""
    folder = write_archives(tmp_path / "mirror")
    urls = dict.fromkeys(MIRRORS, [(tmp_path / "gone").as_uri(), folder.as_uri()])
    ours = {name: [digest(folder / name, ALGORITHMS[len(one)]) for one in known] for name, known in DIGESTS.items()}
    monkeypatch.setattr(translation_source, "MIRRORS", urls)
    monkeypatch.setattr(translation_source, "DIGESTS", ours)
    return folder


def test_archives_that_are_downloaded(tmp_path, mirrors):
    """Only when they are read; what another file has sent at a mirror is not taken."""
    (tmp_path / "gone").mkdir()
    for name in (TEST, DEV):
        (tmp_path / "gone" / name).write_text("<html>log in first")
    source = downloaded(tmp_path / "downloads")
    assert source.is_official and not (tmp_path / "downloads").exists()
    assert contents(source) == EXPECTED
    assert sorted(path.name for path in (tmp_path / "downloads").iterdir()) == sorted(MIRRORS)


def test_another_file_than_it_should_be(tmp_path, mirrors, capsys):
    """By SHA-256 or MD5, whichever is known. Where it was given, it is taken with a warning."""
    for name in (EUROPARL, DEV, TEST):
        folder = write_archives(tmp_path / name.removesuffix(".tgz"))
        source = given(folder)
        assert source.is_official and source.corpus == "wmt14_en_de" and not capsys.readouterr().err
        assert source.settings == {name: digest(folder / name) for name in MIRRORS}
        (folder / name).write_bytes((folder / name).read_bytes() + b"x")
        assert not given(folder).is_official and f"{name} is not WMT's" in capsys.readouterr().err
        with pytest.raises(UserError, match=rf"{name}: found the digest .*; remove the file and run it again"):
            downloaded(folder).texts()
    (mirrors / DEV).unlink()
    with pytest.raises(UserError, match=r"could not download dev\.tgz"):
        downloaded(tmp_path / "downloads").texts()
