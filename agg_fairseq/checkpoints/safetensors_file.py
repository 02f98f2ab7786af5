"""Reading files in the format of safetensors, of which only the tensors that are asked for are read.

A file is 8 bytes with the length of the header (little-endian), the header, which is a JSON object, and the numbers of
all tensors. The header has, for each tensor, `{"dtype": "BF16", "shape": [V, D], "data_offsets": [begin, end]}`, with
offsets from the end of the header. The tensors fill the rest of the file without gaps or overlaps. An entry
`__metadata__` holds texts. Nothing in such a file can be run.
"""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..errors import UserError, first_line
from ..files import open_file

MOST_HEADER_BYTES = 100_000_000
"""The length of a header above which the format's own library refuses a file."""
FLOATS = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
"""The types whose numbers are those of the model. Those of 8 bits and less are quantized and need scales."""
BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "U16": 2, "I16": 2, "U32": 4, "I32": 4, "U64": 8, "I64": 8,
    "F16": 2, "BF16": 2, "F32": 4, "F64": 8,
}  # fmt: skip
"""Of a number of each type; the format has further ones of 8 bits and less."""


class Entry(NamedTuple):
    """What the header says of a tensor.

    Args:
        dtype: as the format names it.
        shape: of the tensor.
        begin: of its bytes, from the end of the header.
        end: of its bytes, exclusive.
    """

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


class SafetensorsFile:
    """A file of tensors; opening it reads only the header.

    Args:
        path: of the file.

    Attributes:
        path: of the file.
        entries: what the header says, by the names of the tensors.
        fingerprint: path, size and time of change.

    Raises:
        UserError: there is no such file, or it is truncated, or not of this format.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            with open_file(self.path, "rb") as file:
                status = self.path.stat()
                length = file.read(8)
                size = struct.unpack("<Q", length)[0] if len(length) == 8 else 0
                if not 2 <= size <= min(status.st_size - 8, MOST_HEADER_BYTES):
                    raise self._error(f"found a header of {size:,} bytes in a file of {status.st_size:,}")
                header = json.loads(file.read(size).decode("utf-8"), object_pairs_hook=_without_repetition)
        except OSError as error:
            raise UserError(f"{self.path}: unreadable ({first_line(error)}); expected a file of safetensors") from error
        except (ValueError, RecursionError) as error:
            raise self._error(f"found no header in JSON ({first_line(error)})") from error
        if not isinstance(header, dict):
            raise self._error(f"found a JSON {type(header).__name__} as its header")
        texts = header.pop("__metadata__", {})
        if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
            raise self._error("found a __metadata__ that is not an object of texts")
        self.fingerprint = (str(self.path.resolve()), status.st_size, status.st_mtime_ns)
        self.entries = {name: self._entry(name, value) for name, value in header.items()}
        self._start = 8 + size
        position = 0
        for name, entry in sorted(self.entries.items(), key=lambda item: item[1][2:]):
            if entry.begin != position:
                raise self._error(f"found {name} at byte {entry.begin:,} of the numbers instead of {position:,}")
            position = entry.end
        if position != status.st_size - self._start:
            raise self._error(f"found {status.st_size - self._start:,} bytes of numbers instead of {position:,}")

    def tensor(self, name: str) -> Tensor:
        """A tensor in the dtype of the file, mapped from it: pages are read when they are used.

        Raises:
            UserError: its numbers are not floating-point numbers of 16 bits or more; or there are none.
            KeyError: there is no tensor of this name.
        """
        entry = self.entries[name]
        if entry.dtype not in FLOATS or not math.prod(entry.shape):
            raise UserError(
                f"{self.path}: found {name} of type {entry.dtype} and shape {list(entry.shape)}; expected "
                f"floating-point numbers that are not quantized ({', '.join(FLOATS)})"
            )
        start = self._start + entry.begin
        # "c": copy on write, since torch warns of memory that cannot be written
        numbers = torch.from_numpy(np.memmap(self.path, np.uint8, "c", start, (entry.end - entry.begin,)))
        if start % BYTES[entry.dtype]:
            numbers = numbers.clone()  # torch expects aligned numbers
        return numbers.view(FLOATS[entry.dtype]).view(entry.shape)

    def _entry(self, name: str, value: Any) -> Entry:
        if not isinstance(value, dict) or value.keys() != {"dtype", "shape", "data_offsets"}:
            raise self._error(f"found no dtype, shape and data_offsets of {name!r}")
        dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
        are_lists = isinstance(dtype, str) and isinstance(shape, list) and isinstance(offsets, list)
        if not are_lists or len(offsets) != 2 or not all(type(one) is int and one >= 0 for one in (*shape, *offsets)):
            raise self._error(f"found dtype {dtype!r}, shape {shape!r} and data_offsets {offsets!r} of {name!r}")
        begin, end = offsets
        if end < begin or (dtype in BYTES and end - begin != math.prod(shape) * BYTES[dtype]):
            raise self._error(f"found {end - begin} bytes of {name!r}, of type {dtype} and shape {shape}")
        return Entry(dtype, tuple(shape), begin, end)

    def _error(self, found: str) -> UserError:
        return UserError(f"{self.path}: {found[:300]}; expected a whole file of safetensors; download or save it again")


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON.

    Raises:
        ValueError: a name occurs twice, so that readers could disagree about which entry counts.
    """
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name occurs twice")
    return found
