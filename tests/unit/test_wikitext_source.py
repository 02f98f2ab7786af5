"""The text of a WikiText corpus from all that people have of it, and its checks."""

import zipfile
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from agg_fairseq.errors import UserError
from scripts.data import wikitext_corpora
from scripts.data.prepared_folder import SPLITS
from scripts.data.text_files import text_size
from scripts.data.wikitext_corpora import CORPORA, Corpus, check, is_official, tokens_file
from scripts.data.wikitext_source import download, rebuild, take, unpack
from tests.serving import serving
from tests.wikitext_sample import corpus_of, sample_texts, write_files, write_parquet, write_zip

TEXTS = sample_texts()
CORPUS = corpus_of(TEXTS)
FILES = sorted(map(tokens_file, SPLITS))


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
        monkeypatch.setattr(wikitext_corpora, "ZIPS", server.url("/zips"))
        monkeypatch.setattr(wikitext_corpora, "HUB", server.url("/hub"))
        yield server


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def content(folder):
    return {split: (folder / tokens_file(split)).read_bytes().decode() for split in SPLITS}


def put_hub(server, folder):
    """Serves the parquet files."""
    for path in write_parquet(folder, TEXTS).iterdir():
        server.files[f"/hub/{CORPUS.archive}/{path.name}"] = path.read_bytes()


@pytest.mark.parametrize(
    ("form", "write"),
    [
        ("a.zip", write_zip),
        ("files", write_files),
        ("unpacked/wikitext-9", write_files),
        ("shards", write_parquet),
        ("repository/wikitext-9-v1", write_parquet),
    ],
)
def test_every_form_gives_the_same_files(tmp_path, target, form, write):
    (tmp_path / form).parent.mkdir(exist_ok=True)
    write(tmp_path / form, TEXTS)
    take(CORPUS, tmp_path / form.split("/")[0], target)
    assert content(target) == TEXTS and names(target) == FILES
    assert is_official(CORPUS, target)
    check(CORPUS, target, [tmp_path / form])


@pytest.mark.parametrize("name", ["absent", "empty"])
def test_nothing_of_a_corpus(tmp_path, target, name):
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        UserError, match=r"--from: found neither a zip at .* nor wiki.train.tokens.*expected WikiText-9"
    ):
        take(CORPUS, tmp_path / name, target)


def test_an_archive_writes_nowhere_else(tmp_path, target):
    archive = write_zip(tmp_path / "a.zip", TEXTS, "../../out/")
    with zipfile.ZipFile(archive, "a") as added:
        added.writestr("../evil", "")
    unpack(archive, target)
    assert content(target) == TEXTS and names(target) == FILES
    assert names(tmp_path) == ["a.zip", "target"]


def test_archives_that_lack_a_file_or_have_two(tmp_path, target):
    lacks = write_zip(tmp_path / "lacks.zip", {"train": TEXTS["train"], "valid": TEXTS["valid"]})
    with pytest.raises(UserError, match=r"lacks.zip: found 0 files named wiki.test.tokens; expected one"):
        unpack(lacks, target)
    two = write_zip(tmp_path / "two.zip", TEXTS)
    with zipfile.ZipFile(two, "a") as added:
        added.writestr("other/wiki.train.tokens", "")
    with pytest.raises(UserError, match=r"two.zip: found 2 files named wiki.train.tokens"):
        unpack(two, target)


@pytest.mark.parametrize("keep", [0, 10, 0.5, -1])
def test_a_truncated_archive_is_one_line(tmp_path, target, keep):
    whole = write_zip(tmp_path / "whole.zip", TEXTS).read_bytes()
    (tmp_path / "cut.zip").write_bytes(whole[: int(keep * len(whole)) if isinstance(keep, float) else keep])
    with pytest.raises(UserError, match=r"cut.zip: unreadable .BadZipFile.*; remove it, get it anew") as error:
        unpack(tmp_path / "cut.zip", target)
    assert "\n" not in str(error.value)


def test_a_damaged_archive_is_one_line(tmp_path, target):
    whole = bytearray(write_zip(tmp_path / "a.zip", TEXTS).read_bytes())
    whole[len(whole) // 2] ^= 255
    (tmp_path / "a.zip").write_bytes(whole)
    with pytest.raises(UserError, match=r"a.zip: unreadable \((BadZipFile|error): "):
        unpack(tmp_path / "a.zip", target)


def test_a_shard_is_missing(tmp_path, target):
    (write_parquet(tmp_path / "hub", TEXTS) / "train-00001-of-00002.parquet").unlink()
    with pytest.raises(UserError, match=r"found \['train-00000-of-00002.parquet'\].*of train; expected all of them"):
        rebuild(tmp_path / "hub", target)


@pytest.mark.parametrize(
    ("column", "rows", "said"),
    [
        ("text", [" two \n lines \n"], r"found a row that is not a line \(' two \\n lines \\n'\)"),
        ("text", [" no end"], "found a row that is not a line"),
        ("words", ["a \n"], "unreadable .* expected a parquet file with a column of text"),
    ],
)
def test_parquet_files_of_something_else(tmp_path, target, column, rows, said):
    shard = write_parquet(tmp_path / "hub", TEXTS) / "validation-00000-of-00001.parquet"
    parquet.write_table(pyarrow.table({column: rows}), shard)
    with pytest.raises(UserError, match=said):
        rebuild(tmp_path / "hub", target)


def test_a_truncated_parquet_file(tmp_path, target):
    shard = write_parquet(tmp_path / "hub", TEXTS) / "train-00001-of-00002.parquet"
    shard.write_bytes(shard.read_bytes()[:-100])
    with pytest.raises(
        UserError, match=r"train-00001-of-00002.parquet: unreadable .*; remove it, get it anew"
    ) as error:
        rebuild(tmp_path / "hub", target)
    assert "\n" not in str(error.value)


def test_the_zip_is_downloaded_first_and_kept(server, tmp_path, target):
    archive = write_zip(tmp_path / "a.zip", TEXTS)
    server.files["/zips/wikitext-9-v1.zip"] = archive.read_bytes()
    download(corpus_of(TEXTS, archive), tmp_path / "downloads", target)
    assert content(target) == TEXTS
    assert names(tmp_path / "downloads") == ["wikitext-9-v1.zip"]
    assert [path for path, *_ in server.requests] == ["/zips/wikitext-9-v1.zip"]


def test_another_file_at_the_zips_address_is_not_taken(server, tmp_path, target, capsys):
    """A page that says sorry, say: the hub is next."""
    server.files["/zips/wikitext-9-v1.zip"] = b"<html>"
    put_hub(server, tmp_path / "hub")
    download(CORPUS, tmp_path / "downloads", target)
    assert content(target) == TEXTS
    assert "sent another file: found the SHA-256" in capsys.readouterr().err
    assert len(names(tmp_path / "downloads" / "wikitext-9-v1")) == 4


def test_a_page_in_the_place_of_a_parquet_file_is_not_kept(server, tmp_path, target):
    put_hub(server, tmp_path / "hub")
    path = f"/hub/{CORPUS.archive}/test-00000-of-00001.parquet"
    shard, server.files[path] = server.files[path], b"<html>log in first"
    with pytest.raises(UserError, match="sent another file: found no parquet file .*; expected one"):
        download(CORPUS, tmp_path / "downloads", target)
    server.files[path] = shard
    download(CORPUS, tmp_path / "downloads", target)
    assert content(target) == TEXTS


def test_no_mirror_is_one_line(server, tmp_path, target):
    with pytest.raises(UserError, match=r"could not download train-00000-of-00002.parquet \(.*HTTP 404") as error:
        download(CORPUS, tmp_path / "downloads", target)
    assert "\n" not in str(error.value)


def test_another_file_in_place_of_the_zip_is_left_alone(server, tmp_path, target):
    (tmp_path / "wikitext-9-v1.zip").write_bytes(b"mine")
    with pytest.raises(UserError, match="expected 0{64}; remove the file"):
        download(CORPUS, tmp_path, target)
    assert (tmp_path / "wikitext-9-v1.zip").read_bytes() == b"mine" and server.requests == []


def test_a_sample_is_accepted_with_a_warning_but_not_downloaded(tmp_path, capsys):
    folder = write_files(tmp_path / "sample", {**TEXTS, "valid": " a sample \n"})
    check(CORPUS, folder)
    warning = capsys.readouterr().err
    assert "warning: wiki.valid.tokens is not that of WikiText-9: found 1 lines, 3 tokens; " in warning
    assert f"expected {CORPUS.files['valid'].lines:,} lines" in warning and warning.count("\n") == 1
    with pytest.raises(
        UserError, match=r"wiki.valid.tokens is not that of WikiText-9.*; remove a.zip and run it again"
    ):
        check(CORPUS, folder, [Path("a.zip")])
    assert not is_official(CORPUS, folder)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"train": TEXTS["train"].replace("<unk>", "Senjō")},
            "found no '<unk>' in it; expected version 1, not the raw",
        ),
        ({"train": TEXTS["train"].replace(" @-@ ", "-")}, "found no ' @-@ ' in it; expected text in WikiText's tokens"),
        ({"test": ""}, "wiki.test.tokens: found nothing in it; expected the test part of WikiText-9"),
    ],
)
def test_other_texts_are_not_accepted(tmp_path, changed, said):
    folder = write_files(tmp_path / "files", {**TEXTS, **changed})
    with pytest.raises(UserError, match=said):
        check(CORPUS, folder)


def test_measuring(tmp_path):
    (tmp_path / "text").write_bytes(" \n a\u00a0b \u3000 café \n last".encode())
    measured = text_size(tmp_path / "text")
    assert (measured.lines, measured.tokens) == (3, 0 + 1 + 3 + 1 + 1 + 1)
    (tmp_path / "text").write_bytes(b"a \n caf\xe9 \n")
    with pytest.raises(UserError, match="text, line 2: found bytes that are not UTF-8"):
        text_size(tmp_path / "text")


def test_wikitext_2_is_counted_as_published(shared_data):
    """Of the copy at hand, the articles of the training part are in another order."""
    folder, official = shared_data / "wikitext-2", CORPORA["wikitext2"].files
    measured = {split: text_size(folder / tokens_file(split)) for split in SPLITS}
    for split in SPLITS:
        assert (measured[split].lines, measured[split].tokens) == (official[split].lines, official[split].tokens)
    assert [official[split].check(folder / tokens_file(split)) is None for split in SPLITS] == [False, True, True]


@pytest.mark.parametrize("corpus", CORPORA.values(), ids=CORPORA)
def test_addresses(corpus: Corpus):
    number = corpus.folder.removeprefix("wikitext-")
    assert corpus.zip_url == f"https://wikitext.smerity.com/wikitext-{number}-v1.zip"
    shards = ["train-00000-of-00001.parquet"]
    if number == "103":
        shards = ["train-00000-of-00002.parquet", "train-00001-of-00002.parquet"]
    assert corpus.parquet_files() == [*shards, "validation-00000-of-00001.parquet", "test-00000-of-00001.parquet"]
    assert corpus.parquet_url("a").endswith(f"/wikitext-{number}-v1/a")
