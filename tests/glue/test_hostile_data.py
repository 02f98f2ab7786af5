"""Damaged binarized splits: read as they were written, or refused in one line."""

import struct

import numpy as np
import pytest
import torch
from fairseq.data import Dictionary, data_utils
from fairseq.data.indexed_dataset import MMapIndexedDatasetBuilder

from agg_fairseq.data.binarized import count_tokens
from agg_fairseq.errors import UserError
from tests.hostile import AMOUNTS, fuzz


def split(folder, tokens, dtype=np.uint16):
    builder = MMapIndexedDatasetBuilder(str(folder / "train.bin"), dtype=dtype)
    for sentence in tokens:
        builder.add_item(torch.tensor(sentence))
    builder.finalize(str(folder / "train.idx"))


@AMOUNTS
@pytest.mark.parametrize("suffix", ["idx", "bin"])
def test_a_damaged_split_is_read_as_it_was_written_or_refused(files, suffix, tmp_path):
    """Its counts, and the sentences that fairseq then reads from it. A flipped bit of a token is
    another token."""
    split(tmp_path, [[0, 1, 2], [3, 2]])
    path = tmp_path / f"train.{suffix}"

    def check(content):
        path.write_bytes(content)
        try:
            counts = count_tokens(tmp_path, Dictionary())
        except UserError as error:
            assert "\n" not in str(error)
            return
        tokens = (
            [0, 1, 2, 3, 2] if suffix == "idx" else np.frombuffer(content, dtype=np.uint16).tolist()
        )
        assert counts.tolist() == np.bincount(tokens, minlength=4).tolist()
        found = data_utils.load_indexed_dataset(str(tmp_path / "train"), Dictionary())
        assert [sentence.tolist() for sentence in found] == [tokens[:3], tokens[3:]]

    fuzz(check, path.read_bytes(), files)


def index_of(sizes, begins, code=8, number=None):
    """The index of a split by its format; the type 8 is uint16."""
    header = struct.pack(
        "<9sQBQ", b"MMIDIDX\x00\x00", 1, code, len(sizes) if number is None else number
    )
    return header + np.array(sizes, dtype="<i4").tobytes() + np.array(begins, dtype="<i8").tobytes()


WRONG_INDICES = {
    "a size too small": index_of([3, 1], [0, 6]),
    "two sizes that sum up": index_of([2, 3], [0, 6]),
    "a beginning inside a token": index_of([3, 2], [0, 5]),
    "more sentences than a machine can number": index_of([3, 2], [0, 6], number=2**63),
    "an unknown type": index_of([3, 2], [0, 6], code=77),
    "another width": index_of([3, 2], [0, 12], code=4),
    "fractions": index_of([3, 2], [0, 24], code=7),
}


@pytest.mark.parametrize("name", WRONG_INDICES)
def test_an_index_that_contradicts_itself_or_the_tokens_is_refused(name, tmp_path):
    split(tmp_path, [[0, 1, 2], [3, 2]])
    assert (tmp_path / "train.idx").read_bytes() == index_of([3, 2], [0, 6])
    (tmp_path / "train.idx").write_bytes(WRONG_INDICES[name])
    with pytest.raises(UserError, match=f"{tmp_path / 'train'}: .*run fairseq-preprocess again"):
        count_tokens(tmp_path, Dictionary())


@pytest.mark.parametrize("token", [-1, 4, 2**31 - 1])
def test_a_token_beyond_the_dictionary_is_refused_without_room_for_all_below_it(token, tmp_path):
    split(tmp_path, [[0, token, 2]], dtype=np.int32)
    with pytest.raises(UserError, match=f"found token {token}, beyond all 4"):
        count_tokens(tmp_path, Dictionary())
