"""Files of safetensors: read as the format's own library reads them, and refused where it refuses them."""

import json
import struct

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agg_fairseq.checkpoints.safetensors_file import BYTES, FLOATS, MOST_HEADER_BYTES, SafetensorsFile
from tests.hostile import FEW, MANY, damaged, refusal, special_files

safetensors = pytest.importorskip("safetensors.torch", reason="needs safetensors, which transformers brings")

TENSORS = {
    **{name: torch.linspace(-2, 3, 6, dtype=torch.float64).to(dtype).view(3, 2) for name, dtype in FLOATS.items()},
    "scalar": torch.tensor(2.5),
    "empty": torch.empty(0, 4),
    "integers": torch.arange(5),
    "bytes": torch.arange(3, dtype=torch.uint8),  # what follows it is not aligned
}
VALID = safetensors.save(TENSORS, {"format": "pt"})


def written(path, header, numbers=b""):
    """A file with any header: a text, or what becomes one in JSON."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + numbers)
    return path


def read(path):
    """The floating-point tensors of a file."""
    file = SafetensorsFile(path)
    wanted = [name for name, entry in file.entries.items() if entry.dtype in FLOATS and 0 not in entry.shape]
    return {name: file.tensor(name) for name in wanted}


def test_tensors_are_those_of_the_library(tmp_path):
    path = tmp_path / "a.safetensors"
    path.write_bytes(VALID)
    found = read(path)
    assert found.keys() == {*FLOATS, "scalar"}
    for name, tensor in found.items():
        assert tensor.dtype == TENSORS[name].dtype and tensor.shape == TENSORS[name].shape
        assert torch.equal(tensor, TENSORS[name])


@pytest.mark.parametrize("dtype", FLOATS)
def test_numbers_need_not_be_aligned(dtype, tmp_path):
    tensor = TENSORS[dtype]
    numbers = tensor.contiguous().view(torch.uint8).numpy().tobytes()
    for shift in range(4):
        header = {
            "a": {"dtype": "U8", "shape": [shift], "data_offsets": [0, shift]},
            "b": {"dtype": dtype, "shape": [3, 2], "data_offsets": [shift, shift + len(numbers)]},
        }
        path = written(tmp_path / f"{shift}", header, bytes(shift) + numbers)
        assert torch.equal(read(path)["b"], tensor)
        assert torch.equal(read(path)["b"] * 2, tensor * 2)


def test_only_the_header_is_read_before_a_tensor_is_asked_for(tmp_path):
    """A file of 1 TiB without disk space: reading it whole would take hours."""
    rows = 2**36
    header = {
        "a": {"dtype": "F32", "shape": [rows, 4], "data_offsets": [0, rows * 16]},
        "b": {"dtype": "F32", "shape": [1, 2], "data_offsets": [rows * 16, rows * 16 + 8]},
    }
    path = written(tmp_path / "large.safetensors", header)
    try:
        with path.open("r+b") as file:
            file.truncate(path.stat().st_size + rows * 16 + 8)
    except OSError:
        pytest.skip("this file system has no sparse files of this size")
    assert SafetensorsFile(path).tensor("b").tolist() == [[0, 0]]


def entry(dtype="F32", shape=(2,), offsets=(0, 8)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


DAMAGED = {
    "a header that is longer than the file": struct.pack("<Q", 10**9) + b"{}",
    "a header of gigabytes": struct.pack("<Q", MOST_HEADER_BYTES + 1) + b"{}",
    "no header": b"\x01\0",
    "nothing": b"",
    "a header that is no JSON": struct.pack("<Q", 4) + b"{a:}",
    "a list": struct.pack("<Q", 2) + b"[]",
    "a deep header": struct.pack("<Q", 100_000) + b"[" * 100_000,
    "a header that is no UTF-8": struct.pack("<Q", 6) + b'{"\xff"}',
}
WRONG_ENTRIES = {
    "no object": 3,
    "no offsets": {"dtype": "F32", "shape": [2]},
    "another key": {**entry(), "more": 1},
    "negative offsets": entry(offsets=(-8, 0)),
    "offsets in the wrong order": entry(offsets=(8, 0)),
    "one offset": {**entry(), "data_offsets": [8]},
    "offsets that are no whole numbers": entry(offsets=(0, 8.0)),
    "offsets beyond the file": entry(shape=(4,), offsets=(0, 16)),
    "offsets of another size": entry(offsets=(0, 6)),
    "a gap": entry(offsets=(4, 12)),
    "a shape of texts": entry(shape=("2",)),
    "a negative shape": entry(shape=(-1, -2)),
    "a shape of truth values": entry(shape=(True, 2)),
    "a huge shape": entry(shape=(2**62, 2**62)),
    "no shape": {**entry(), "shape": None},
    "no type": {**entry(), "dtype": None},
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_damaged_files(content, tmp_path):
    path = tmp_path / "a.safetensors"
    path.write_bytes(content)
    said, _ = refusal(SafetensorsFile, path)
    assert said.startswith(f"{path}: found") and "expected a whole file of safetensors" in said


@pytest.mark.parametrize("wrong", WRONG_ENTRIES.values(), ids=WRONG_ENTRIES)
def test_wrong_entries(wrong, tmp_path):
    said, _ = refusal(SafetensorsFile, written(tmp_path / "a", {"a": wrong}, bytes(8)))
    assert "expected a whole file of safetensors" in said and len(said) < 1000


def test_overlaps_repetitions_and_trailing_bytes(tmp_path):
    overlap = {"a": entry(), "b": entry(offsets=(4, 12))}
    assert refusal(SafetensorsFile, written(tmp_path / "a", overlap, bytes(12)))[0]
    text = json.dumps(entry())
    twice = f'{{"a": {text}, "a": {text}}}'.encode()
    assert "twice" in refusal(SafetensorsFile, written(tmp_path / "b", twice, bytes(8)))[0]
    assert (
        "9 bytes of numbers instead of 8"
        in refusal(SafetensorsFile, written(tmp_path / "c", {"a": entry()}, bytes(9)))[0]
    )


@pytest.mark.parametrize(("name", "kind"), [("integers", "I64"), ("empty", "F32")])
def test_what_is_no_matrix_of_numbers(name, kind, tmp_path):
    path = tmp_path / "a.safetensors"
    path.write_bytes(VALID)
    said, _ = refusal(SafetensorsFile(path).tensor, name)
    assert f"found {name} of type {kind}" in said


def test_what_is_no_file(tmp_path):
    for path in (*special_files(tmp_path).values(), tmp_path / "missing"):
        assert "expected a file of safetensors" in refusal(SafetensorsFile, path)[0]


def check_damaged(content, path):
    """What is read is what the library reads; what is refused, it refuses too."""
    path.write_bytes(content)
    said, found = refusal(read, path)
    try:
        expected = safetensors.load(content)
    except Exception:  # SafetensorError, and whatever torch says of types that it does not know
        unknown = said is None and any(entry.dtype not in BYTES for entry in SafetensorsFile(path).entries.values())
        assert said is not None or not found or unknown  # a type that a later version of the format may have
        return
    assert said is None, said
    for name, tensor in found.items():
        assert torch.equal(tensor.nan_to_num(), expected[name].nan_to_num())


headers = st.dictionaries(
    st.sampled_from(("a", "b", "__metadata__")),
    st.one_of(
        st.builds(
            entry,
            st.sampled_from(("F32", "BF16", "U8", "F9")),
            st.lists(st.integers(0, 4), max_size=2),
            st.tuples(st.integers(0, 16), st.integers(0, 16)),
        ),
        st.sampled_from((3, None, {}, [], {"a": "b"})),
    ),
)


@FEW
@given(content=damaged(VALID))
def test_few_damaged_files(content, tmp_path_factory):
    check_damaged(content, tmp_path_factory.getbasetemp() / "few.safetensors")


@FEW
@given(header=headers, size=st.integers(0, 16))
def test_few_headers(header, size, tmp_path_factory):
    text = json.dumps(header).encode()
    content = struct.pack("<Q", len(text)) + text + bytes(size)
    check_damaged(content, tmp_path_factory.getbasetemp() / "headers.safetensors")


@pytest.mark.slow
@MANY
@given(content=damaged(VALID))
def test_many_damaged_files(content, tmp_path_factory):
    check_damaged(content, tmp_path_factory.getbasetemp() / "many.safetensors")
