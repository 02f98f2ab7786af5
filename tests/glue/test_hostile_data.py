"""Damaged dictionaries, binarized splits, kept counts and archives: right, or refused in one line."""

import io
import tarfile
import zipfile

import numpy as np
import pytest
import torch
from fairseq.data import Dictionary
from hypothesis import given

from agg_fairseq.data.binarized import count_tokens, load_dictionary
from agg_fairseq.data.training_counts import _read as read_counts
from scripts.data.text_files import Text
from scripts.data.wikitext_source import unpack
from tests.hostile import FEW, damaged, refusal, special_files

DICTIONARY = "the 40\ncaf\u00e9 3\n\u20ac 2 #fairseq:overwrite\n".encode()
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]


def entries(content):
    """By the format: a token, a space, a whole number; and perhaps a flag, with which it may be there twice."""
    found = {}
    for line in content.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").split("\n"):
        token, count = line.rstrip().removesuffix(" #fairseq:overwrite").rsplit(" ", 1)
        found.setdefault(token, int(count))
    return found


def test_a_damaged_dictionary_has_the_tokens_of_its_lines_or_is_refused(tmp_path):
    def check(content):
        (tmp_path / "dict.txt").write_bytes(content)
        said, dictionary = refusal(load_dictionary, tmp_path)
        if said is None:
            known = set(dictionary.symbols) - set(SPECIAL)
            assert known == set(entries(content) if content else {}) - set(SPECIAL)

    FEW(given(damaged(DICTIONARY))(check))()


def split(folder, tokens, dtype=np.uint16):
    from fairseq.data.indexed_dataset import MMapIndexedDatasetBuilder

    builder = MMapIndexedDatasetBuilder(str(folder / "train.bin"), dtype=dtype)
    for sentence in tokens:
        builder.add_item(torch.tensor(sentence))
    builder.finalize(str(folder / "train.idx"))


@pytest.mark.parametrize("suffix", ["idx", "bin"])
def test_a_damaged_split_is_counted_over_its_dictionary_or_refused(suffix, tmp_path):
    dictionary = Dictionary()
    split(tmp_path, [[0, 1, 2], [3, 2]])
    path = tmp_path / f"train.{suffix}"

    def check(content):
        path.write_bytes(content)
        said, counts = refusal(count_tokens, tmp_path, dictionary)
        assert said is not None or (counts.shape == (4,) and counts.sum() == 5)

    FEW(given(damaged(path.read_bytes()))(check))()


@pytest.mark.parametrize("token", [-1, 4, 2**31 - 1])
def test_a_token_beyond_the_dictionary_is_refused_without_room_for_all_below_it(token, tmp_path):
    split(tmp_path, [[0, token, 2]], dtype=np.int32)
    said, _ = refusal(count_tokens, tmp_path, Dictionary())
    assert f"found token {token}, but the dictionary has 4" in said


def test_a_split_that_was_cut_off_is_refused(tmp_path):
    split(tmp_path, [[0, 1, 2], [3, 2]])
    (tmp_path / "train.bin").write_bytes((tmp_path / "train.bin").read_bytes()[:-4])
    said, _ = refusal(count_tokens, tmp_path, Dictionary())
    assert "train.bin: found 3 tokens; expected 5, as train.idx has it" in said


@pytest.mark.parametrize("content", [b"", b"abcdefg"])
def test_a_split_that_is_broken_is_refused_by_the_name_of_its_file(content, tmp_path):
    split(tmp_path, [[0, 1, 2], [3, 2]])
    (tmp_path / "train.bin").write_bytes(content)
    said, _ = refusal(count_tokens, tmp_path, Dictionary())
    assert said.startswith(f"{tmp_path / 'train.bin'}: found ")


def test_an_index_that_is_no_file_is_refused_at_once(tmp_path):
    split(tmp_path, [[0, 1, 2]])
    (tmp_path / "train.idx").unlink()
    (tmp_path / "train.idx").symlink_to(special_files(tmp_path)["pipe"])
    said, _ = refusal(count_tokens, tmp_path, Dictionary())
    assert "found a folder, a pipe or a device" in said


def test_kept_counts_that_are_damaged_or_of_another_kind_are_not_taken(tmp_path):
    path = tmp_path / "counts.npz"
    good = np.array([3, 0, 2], dtype=np.int64)
    np.savez(path, source="s", counts=good)

    def check(content):
        path.write_bytes(content)
        found = read_counts(path, "s", 3)
        assert found is None or (found.shape == (3,) and found.min() >= 0)

    FEW(given(damaged(path.read_bytes()))(check))()
    for counts in (-good, good[:2], good.astype(float), good[None], np.array(["a", "b", "c"])):
        np.savez(path, source="s", counts=counts)
        assert read_counts(path, "s", 3) is None
    np.savez(path, source="s", counts=np.array([print, 1, 2], dtype=object))
    assert read_counts(path, "s", 3) is None, "what would be unpickled"


def zipped(compression, names):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for split, name in names.items():
            archive.writestr(name, PACKED[split])
    return file.getvalue()


SPLITS = tuple(f"wiki.{split}.tokens" for split in ("train", "valid", "test"))
PACKED = {name: f"a line of {name}\n".encode() * 20 for name in SPLITS}


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_a_damaged_zip_gives_its_files_or_is_refused_and_writes_nothing_else(compression, tmp_path):
    path, folder = tmp_path / "in" / "zip", tmp_path / "in" / "folder"
    folder.mkdir(parents=True)

    def check(content):
        path.write_bytes(content)
        for place in folder.iterdir():
            place.unlink()
        said, _ = refusal(unpack, path, folder)
        found = {place.name: place.read_bytes() for place in folder.iterdir()}
        assert found.keys() <= PACKED.keys() and (said is not None or found == PACKED)
        assert sorted(place.name for place in tmp_path.rglob("*") if place.parent != folder) == ["folder", "in", "zip"]

    for place in ("", "../../", "/"):
        FEW(given(damaged(zipped(compression, {name: f"{place}{name}" for name in SPLITS})))(check))()


CHECKSUMMED = ("w:gz", "w:bz2", "w:xz")
"""The modes of `tarfile` whose files are known to be whole: a plain tar has a checksum of its headers alone."""


@pytest.mark.parametrize("mode", ["w", *CHECKSUMMED])
def test_a_damaged_tar_gives_its_lines_or_is_refused(mode, tmp_path):
    file, path = io.BytesIO(), tmp_path / "archive"
    with tarfile.open(fileobj=file, mode=mode) as archive:
        for name, content in {"../other": b"x\n", "a.en": b"one\ntwo\n"}.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))

    def read(content):
        path.write_bytes(content)
        return refusal(lambda: list(Text(path, ("a.en",)).lines()))

    def check(content):
        said, lines = read(content)
        assert said is not None or lines == ["one", "two"] or mode not in CHECKSUMMED
        assert list(tmp_path.iterdir()) == [path] and not (tmp_path.parent / "other").exists()

    assert read(file.getvalue()) == (None, ["one", "two"])
    FEW(given(damaged(file.getvalue()))(check))()
