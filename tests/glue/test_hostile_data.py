"""Damaged dictionaries, binarized splits, kept counts and archives: right, or refused in one line."""

import io
import struct
import tarfile
import zipfile

import numpy as np
import pytest
import torch
from fairseq.data import Dictionary, data_utils
from fairseq.data.indexed_dataset import IndexedDatasetBuilder, MMapIndexedDatasetBuilder
from hypothesis import given

from agg_fairseq.data.binarized import count_tokens, load_dictionary
from scripts.data.files import Text
from scripts.data.wikitext_source import unpack
from tests.hostile import AMOUNTS, damaged, refusal

DICTIONARY = "the 40\ncaf\u00e9 3\n\u20ac 2 #fairseq:overwrite\n".encode()
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]


def entries(content):
    """By the format: a token, a space, a whole number; and perhaps a flag, with which it may be there twice."""
    found = {}
    for line in content.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").split("\n"):
        token, count = line.rstrip().removesuffix(" #fairseq:overwrite").rsplit(" ", 1)
        found.setdefault(token, int(count))
    return found


@AMOUNTS
def test_a_damaged_dictionary_has_the_tokens_of_its_lines_or_is_refused(amount, tmp_path):
    def check(content):
        (tmp_path / "dict.txt").write_bytes(content)
        said, dictionary = refusal(load_dictionary, tmp_path)
        if said is None:
            known = set(dictionary.symbols) - set(SPECIAL)
            assert known == set(entries(content) if content else {}) - set(SPECIAL)

    amount(given(damaged(DICTIONARY))(check))()


def split(folder, tokens, dtype=np.uint16):
    builder = MMapIndexedDatasetBuilder(str(folder / "train.bin"), dtype=dtype)
    for sentence in tokens:
        builder.add_item(torch.tensor(sentence))
    builder.finalize(str(folder / "train.idx"))


@AMOUNTS
@pytest.mark.parametrize("suffix", ["idx", "bin"])
def test_a_damaged_split_is_read_as_it_was_written_or_refused(amount, suffix, tmp_path):
    """Its counts, and the sentences that fairseq then reads from it. A flipped bit of a token is another token."""
    dictionary = Dictionary()
    split(tmp_path, [[0, 1, 2], [3, 2]])
    path = tmp_path / f"train.{suffix}"

    def check(content):
        path.write_bytes(content)
        said, counts = refusal(count_tokens, tmp_path, dictionary)
        if said is None:
            tokens = [0, 1, 2, 3, 2] if suffix == "idx" else np.frombuffer(content, dtype=np.uint16).tolist()
            assert counts.tolist() == np.bincount(tokens, minlength=4).tolist()
            found = data_utils.load_indexed_dataset(str(tmp_path / "train"), dictionary)
            assert [sentence.tolist() for sentence in found] == [tokens[:3], tokens[3:]]
            assert found.sizes.tolist() == [3, 2]

    amount(given(damaged(path.read_bytes()))(check))()


def index_of(sizes, begins, code=8, number=None):
    """The index of a split by its format; the type 8 is uint16."""
    header = struct.pack("<9sQBQ", b"MMIDIDX\x00\x00", 1, code, len(sizes) if number is None else number)
    return header + np.array(sizes, dtype="<i4").tobytes() + np.array(begins, dtype="<i8").tobytes()


WRONG_INDICES = {
    "a size too small": index_of([3, 1], [0, 6]),
    "two sizes that sum up": index_of([2, 3], [0, 6]),
    "a negative size": index_of([3, -2], [0, 6]),
    "a beginning inside a token": index_of([3, 2], [0, 5]),
    "more sentences than sizes": index_of([3, 2], [0, 6], number=2**60),
    "a rest": index_of([3, 2], [0, 6]) + b"x",
    "an unknown type": index_of([3, 2], [0, 6], code=77),
    "another width": index_of([3, 2], [0, 12], code=4),
    "fractions": index_of([3, 2], [0, 24], code=7),
}


@pytest.mark.parametrize("name", WRONG_INDICES)
def test_an_index_that_contradicts_itself_or_the_tokens_is_refused(name, tmp_path, capfd):
    """Also without the traces that fairseq's data sets leave behind when they cannot be opened."""
    split(tmp_path, [[0, 1, 2], [3, 2]])
    assert (tmp_path / "train.idx").read_bytes() == index_of([3, 2], [0, 6])
    (tmp_path / "train.idx").write_bytes(WRONG_INDICES[name])
    said, _ = refusal(count_tokens, tmp_path, Dictionary())
    assert said.startswith(f"{tmp_path / 'train'}: ") and said.endswith("run fairseq-preprocess again")
    assert "Exception ignored" not in capfd.readouterr().err


def test_the_older_format_of_fairseq(tmp_path):
    """As --dataset-impl lazy and cached write it."""
    builder = IndexedDatasetBuilder(str(tmp_path / "train.bin"))
    for sentence in ([0, 1, 2], [3, 2]):
        builder.add_item(torch.tensor(sentence, dtype=torch.int32))
    builder.finalize(str(tmp_path / "train.idx"))
    assert refusal(count_tokens, tmp_path, Dictionary())[1].tolist() == [1, 1, 2, 1]


@pytest.mark.parametrize("token", [-1, 4, 2**31 - 1])
def test_a_token_beyond_the_dictionary_is_refused_without_room_for_all_below_it(token, tmp_path):
    split(tmp_path, [[0, token, 2]], dtype=np.int32)
    said, _ = refusal(count_tokens, tmp_path, Dictionary())
    assert f"found token {token}, but the dictionary has 4" in said


@AMOUNTS
@pytest.mark.parametrize(("compression", "place"), [(zipfile.ZIP_STORED, "../../"), (zipfile.ZIP_DEFLATED, "/")])
def test_a_damaged_zip_gives_its_files_or_is_refused_and_writes_nothing_else(amount, compression, place, tmp_path):
    path, folder, file = tmp_path / "in" / "zip", tmp_path / "in" / "folder", io.BytesIO()
    packed = {f"wiki.{split}.tokens": f"a line of {split}\n".encode() * 20 for split in ("train", "valid", "test")}
    folder.mkdir(parents=True)
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, content in packed.items():
            archive.writestr(f"{place}{name}", content)

    def check(content):
        path.write_bytes(content)
        for one in folder.iterdir():
            one.unlink()
        said, _ = refusal(unpack, path, folder)
        found = {one.name: one.read_bytes() for one in folder.iterdir()}
        assert found.keys() <= packed.keys() and (said is not None or found == packed)
        assert sorted(one.name for one in tmp_path.rglob("*") if one.parent != folder) == ["folder", "in", "zip"]

    amount(given(damaged(file.getvalue()))(check))()


@AMOUNTS
@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_a_damaged_tar_gives_its_lines_or_is_refused(amount, mode, tmp_path):
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
        has_checksum = mode != "w"  # a plain tar has one of its headers alone
        assert said is not None or lines == ["one", "two"] or not has_checksum
        assert list(tmp_path.iterdir()) == [path] and not (tmp_path.parent / "other").exists()

    assert read(file.getvalue()) == (None, ["one", "two"])
    amount(given(damaged(file.getvalue()))(check))()
