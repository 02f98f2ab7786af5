import zipfile

import pyarrow
import pytest
from pyarrow import parquet

from agg_fairseq.errors import UserError
from scripts.data import wikitext_source
from scripts.data.prepared_folder import SPLITS
from scripts.data.wikitext_source import CORPORA, differences, download, rebuild, take, tokens_file, unpack
from tests.serving import serving
from tests.wikitext_sample import corpus_of, sample_texts, write_files, write_parquet, write_zip

TEXTS = sample_texts()
CORPUS = corpus_of(TEXTS)


@pytest.fixture
def target(tmp_path):
    """An empty folder, as a stage gives it."""
    folder = tmp_path / "target"
    folder.mkdir()
    return folder


@pytest.fixture
def server(monkeypatch):
    """Both mirrors of the corpora."""
    with serving() as server:
        monkeypatch.setattr(wikitext_source, "ZIPS", server.url("/zips"))
        monkeypatch.setattr(wikitext_source, "HUB", server.url("/hub"))
        yield server


def content(folder):
    assert len(list(folder.iterdir())) == 3
    return {split: (folder / tokens_file(split)).read_bytes().decode() for split in SPLITS}


@pytest.mark.parametrize("write", [write_zip, write_files, write_parquet])
def test_every_form_gives_the_same_files(tmp_path, target, write, capsys):
    given = tmp_path / "given"
    write(given, TEXTS)
    take(CORPUS, given, target)
    assert content(target) == TEXTS and not differences(CORPUS, target) and not capsys.readouterr().err


def test_archives_that_lack_a_file_or_have_two_and_write_nowhere_else(tmp_path, target):
    archive = write_zip(tmp_path / "a.zip", TEXTS, "../../out/")
    unpack(archive, target)
    assert content(target) == TEXTS and sorted(path.name for path in tmp_path.iterdir()) == ["a.zip", "target"]
    lacks = write_zip(tmp_path / "lacks.zip", {"train": TEXTS["train"], "valid": TEXTS["valid"]})
    with pytest.raises(UserError, match=r"lacks.zip: found 0 files named wiki.test.tokens; expected one"):
        unpack(lacks, target)
    with zipfile.ZipFile(archive, "a") as added:
        added.writestr("other/wiki.train.tokens", "")
    with pytest.raises(UserError, match=r"a.zip: found 2 files named wiki.train.tokens"):
        unpack(archive, target)


def test_parquet_files_of_something_else_and_missing_ones(tmp_path, target):
    folder = write_parquet(tmp_path / "hub", TEXTS)
    for column, rows in (("text", [" no end"]), ("words", ["a \n"]), ("text", [1])):
        parquet.write_table(pyarrow.table({column: rows}), folder / "validation-00000-of-00001.parquet")
        with pytest.raises(UserError, match="unreadable .* expected a parquet file of Salesforce/wikitext"):
            rebuild(folder, target)
    (folder / "validation-00000-of-00001.parquet").unlink()
    with pytest.raises(UserError, match="found no parquet file of valid; expected all of Salesforce/wikitext"):
        rebuild(folder, target)


def test_the_zip_is_downloaded_first_and_then_the_hub(server, tmp_path, target, capsys):
    """A page in the place of the zip is not taken for it."""
    archive = write_zip(tmp_path / "a.zip", TEXTS)
    server.files["/zips/wikitext-9-v1.zip"] = archive.read_bytes()
    download(corpus_of(TEXTS, archive), tmp_path / "zipped", target)
    assert content(target) == TEXTS and [path for path, _ in server.requests] == ["/zips/wikitext-9-v1.zip"]
    server.files["/zips/wikitext-9-v1.zip"] = b"<html>sorry"
    for path in write_parquet(tmp_path / "hub", TEXTS).iterdir():
        server.files[f"/hub/{CORPUS.archive}/{path.name}"] = path.read_bytes()
    download(CORPUS, tmp_path / "rows", target)
    assert content(target) == TEXTS and len(list((tmp_path / "rows" / "wikitext-9-v1").iterdir())) == 4
    assert "trying the Hugging Face hub" in capsys.readouterr().err
    (shard,) = (tmp_path / "rows" / "wikitext-9-v1").glob("test-*")
    shard.write_bytes(b"<html>log in first")
    with pytest.raises(UserError, match="test-00000-of-00001.parquet: unreadable .*; get it anew") as error:
        download(CORPUS, tmp_path / "rows", target)
    assert "\n" not in str(error.value)


def test_a_given_text_may_be_a_sample_but_not_a_downloaded_one(server, tmp_path, target, capsys):
    sample = {**TEXTS, "valid": " a sample \n"}
    take(CORPUS, write_files(tmp_path / "sample", sample), target)
    warning = capsys.readouterr().err
    assert warning.startswith("wikitext: warning: wiki.valid.tokens is not that of WikiText-9: found the digest ")
    assert warning.count("\n") == 1
    archive = write_zip(tmp_path / "a.zip", sample)
    server.files["/zips/wikitext-9-v1.zip"] = archive.read_bytes()
    with pytest.raises(UserError, match=r"wiki.valid.tokens is not that of WikiText-9: .*; remove .* and run it again"):
        download(corpus_of(TEXTS, archive), tmp_path / "downloads", target)


def test_raw_text_is_not_accepted(tmp_path, target):
    folder = write_files(tmp_path / "raw", {**TEXTS, "train": TEXTS["train"].replace("<unk>", "Senjō")})
    with pytest.raises(
        UserError, match="found no <unk> in the training part; expected WikiText-9, not the raw version"
    ):
        take(CORPUS, folder, target)


def test_wikitext_2_is_the_published_one(shared_data):
    """Of the copy at hand, the articles of the training part are in another order."""
    (other,) = differences(CORPORA["wikitext2"], shared_data / "wikitext-2")
    assert other.startswith("wiki.train.tokens is not that of WikiText-2: ")
