"""Damaged dictionaries and binarized splits: right, or refused in one line."""

import struct

import numpy as np
import pytest
import torch
from fairseq.data import Dictionary, data_utils
from fairseq.data.indexed_dataset import MMapIndexedDatasetBuilder

from agg_fairseq.data.binarized import count_tokens, load_dictionary
from tests.hostile import AMOUNTS, fuzz, refusal

DICTIONARY = "the 40\ncaf\u00e9 3\n\u20ac 2 #fairseq:overwrite\n".encode()
SPECIAL = {"<s>", "<pad>", "</s>", "<unk>"}


def tokens_of(content):
    """By the format: a token, a space, a whole number; and perhaps a flag, with which it may be there twice."""
    lines = content.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").split("\n")
    entries = [line.rstrip().removesuffix(" #fairseq:overwrite").rsplit(" ", 1) for line in lines if content]
    return {token for token, count in entries if int(count) is not None}


@AMOUNTS
def test_a_damaged_dictionary_has_the_tokens_of_its_lines_or_is_refused(files, tmp_path):
    def check(content):
        (tmp_path / "dict.txt").write_bytes(content)
        said, dictionary = refusal(load_dictionary, tmp_path)
        assert said is not None or set(dictionary.symbols) == tokens_of(content) | SPECIAL

    fuzz(check, DICTIONARY, files)


def split(folder, tokens, dtype=np.uint16):
    builder = MMapIndexedDatasetBuilder(str(folder / "train.bin"), dtype=dtype)
    for sentence in tokens:
        builder.add_item(torch.tensor(sentence))
    builder.finalize(str(folder / "train.idx"))


@AMOUNTS
@pytest.mark.parametrize("suffix", ["idx", "bin"])
def test_a_damaged_split_is_read_as_it_was_written_or_refused(files, suffix, tmp_path):
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

    fuzz(check, path.read_bytes(), files)


def index_of(sizes, begins, code=8, number=None):
    """The index of a split by its format; the type 8 is uint16."""
    header = struct.pack("<9sQBQ", b"MMIDIDX\x00\x00", 1, code, len(sizes) if number is None else number)
    return header + np.array(sizes, dtype="<i4").tobytes() + np.array(begins, dtype="<i8").tobytes()


WRONG_INDICES = {
    "a size too small": index_of([3, 1], [0, 6]),
    "two sizes that sum up": index_of([2, 3], [0, 6]),
    "a beginning inside a token": index_of([3, 2], [0, 5]),
    "more sentences than sizes": index_of([3, 2], [0, 6], number=2**60),
    "more sentences than a machine can number": index_of([3, 2], [0, 6], number=2**63),
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


@pytest.mark.parametrize("token", [-1, 4, 2**31 - 1])
def test_a_token_beyond_the_dictionary_is_refused_without_room_for_all_below_it(token, tmp_path):
    split(tmp_path, [[0, token, 2]], dtype=np.int32)
    said, _ = refusal(count_tokens, tmp_path, Dictionary())
    assert f"found token {token}, beyond all 4" in said
