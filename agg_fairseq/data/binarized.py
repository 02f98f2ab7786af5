"""Folders written by `fairseq-preprocess`: their dictionaries, their splits, and the token counts of a split."""

import logging
import re
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from ..errors import UserError, first_line
from ..files import open_file

logger = logging.getLogger(__name__)

BLOCK_TOKENS = 2**24  # tokens that are counted at a time
FILLER = re.compile(r"madeupword\d{4,}")
"""The entries, without occurrences, by which fairseq makes the length of a dictionary a multiple of 8."""
MAGIC = b"MMIDIDX\x00"  # the first bytes of the index that fairseq-preprocess writes
HEADER = len(MAGIC) + 18
"""Bytes before the sizes: these, a zero, a version (8), the type of the tokens (1), the number of sentences (8)."""
UNREADABLE = (ValueError, RuntimeError, AssertionError, OSError, LookupError, TypeError, struct.error)
"""What fairseq and numpy raise for a damaged index."""


def load_dictionary(data: str | Path, file: str = "dict.txt") -> Any:
    """fairseq's dictionary of a folder: `dict.txt`, or that of a language, such as `dict.de.txt`."""
    from fairseq.data import Dictionary

    folder = Path(data)
    if not folder.is_dir():
        raise UserError(f"{folder}: found no such folder; expected one written by fairseq-preprocess")
    if not (folder / file).is_file():
        option = " --only-source" if file == "dict.txt" else ""
        raise UserError(f"{folder}: found no {file}; expected a folder written by fairseq-preprocess{option}")
    try:
        return Dictionary.load(str(folder / file))
    except Exception as error:  # fairseq raises a bare one for a bad line, and for bytes that are not UTF-8
        raise UserError(f"{folder}: found a bad {file} ({first_line(error)}); run fairseq-preprocess again") from error


def in_no_group(dictionary: Any, target_counts: Tensor | None = None) -> Tensor:
    """(V,) bool, the tokens that are in no frequency group, and that no method treats as rare.

    These are the special symbols, and the entries that only fill the dictionary. If it is joined with that of the
    source language, give `target_counts` (V,), those of the target side of the training split: the tokens that never
    occur there are then in no group either.
    """
    # A dictionary that --output-dictionary-size truncates keeps all symbols; V is the number of those in use.
    entries = list(zip(dictionary.symbols, dictionary.count, strict=True))[: len(dictionary)]
    is_excluded = torch.tensor([not count and FILLER.fullmatch(symbol) is not None for symbol, count in entries])
    is_excluded[: dictionary.nspecial] = True
    return is_excluded if target_counts is None else is_excluded | (target_counts == 0)


def training_counts(task: Any, split: str) -> Tensor:
    """The occurrences of each token as a target in a binarized split: (V,) int64 over the target dictionary.

    All folders of a sharded data set are counted, and in each folder `split` and its continuations `split1`, `split2`,
    …, as fairseq reads them; for a translation task, the files of the target side. If a language model predicts only a
    part of its dictionary, the other tokens count as the unknown word, as they do in training.
    """
    from fairseq import utils

    options = getattr(task, "cfg", None) or getattr(task, "args", None)
    data = getattr(options, "data", None)
    if data is None or hasattr(task, "lang_pairs"):
        problem = "names no data" if data is None else "has several training sets"
        raise UserError(f"found the task {task_name(task)}, which {problem}; expected language_modeling or translation")
    source, target = (getattr(options, f"{side}_lang", None) for side in ("source", "target"))
    suffixes = [f".{source}-{target}.{target}", f".{target}-{source}.{target}"] if target else [""]
    parts = [path for folder in utils.split_paths(data) for path in split_parts(folder, split, suffixes)]
    if not parts:
        expected = " or ".join(f"{split}{suffix}.bin" for suffix in suffixes)
        raise UserError(f"{data}: found no {expected}; expected the training split of fairseq-preprocess")
    logger.info(f"counting the target tokens of {len(parts)} file(s): {parts[0]}.bin …")
    dictionary = task.target_dictionary
    whole = getattr(task, "dictionary", None) or dictionary  # that of --output-dictionary-size is its head
    occurrences = sum(count_tokens(path.parent, whole, path.name) for path in parts)
    counts = occurrences[: len(dictionary)].clone()
    counts[dictionary.unk()] += occurrences[len(dictionary) :].sum()
    logger.info(f"found {int(counts.sum()):,} target tokens")
    return counts


def split_parts(folder: str | Path, split: str, suffixes: Sequence[str]) -> list[Path]:
    """A split and its continuations `split1`, `split2`, …, each with the first suffix that is there, without `.bin`."""
    parts: list[Path] = []
    while True:
        paths = [Path(folder) / f"{split}{len(parts) or ''}{suffix}" for suffix in suffixes]
        path = next((path for path in paths if Path(f"{path}.bin").is_file()), None)
        if path is None:
            return parts
        parts.append(path)


def task_name(task: Any) -> str:
    """The name by which `--task` chooses a task; that of its class where the task is not registered."""
    from fairseq.tasks import TASK_REGISTRY

    return next((name for name, kind in TASK_REGISTRY.items() if kind is type(task)), type(task).__name__)


def count_tokens(data: str | Path, dictionary: Any, split: str = "train") -> Tensor:
    """How often each token of the dictionary occurs in a split that `fairseq-preprocess` wrote: (V,) int64.

    The split itself is read, since `dict.txt` has no counts of eos and unk, and has the sum over both languages if they
    have a joined dictionary. A parallel split is named with its side, such as `train.en-de.de`.
    """
    path = Path(data) / split
    tokens = _tokens(path)
    counts = np.zeros(len(dictionary), dtype=np.int64)
    blocks = range(0, len(tokens), BLOCK_TOKENS)
    for start in tqdm(blocks, desc=f"counting {split}", unit="block", disable=None, leave=False):
        block = tokens[start : start + BLOCK_TOKENS]
        beyond = next((int(token) for token in (block.min(), block.max()) if not 0 <= token < len(counts)), None)
        if beyond is not None:
            raise UserError(f"{path}: found token {beyond}, beyond all {len(counts)}; run fairseq-preprocess again")
        counts += np.bincount(block, minlength=len(counts))
    return torch.from_numpy(counts)


def _tokens(path: Path) -> np.ndarray:
    """The tokens of a split, (T,), mapped from the file."""
    from fairseq.data.indexed_dataset import _code_to_dtype

    again, index, contents = "run fairseq-preprocess again", Path(f"{path}.idx"), Path(f"{path}.bin")
    if not contents.is_file():
        raise UserError(f"{contents}: found no such file; expected the binarized split of fairseq-preprocess")
    try:
        with open_file(index, "rb") as file:
            raw = file.read()
        if not raw.startswith(MAGIC):
            raise ValueError("not in the format of --dataset-impl mmap, the default")
        zero, version, code, number = struct.unpack_from("<BQBQ", raw, len(MAGIC))
        if len(raw) != HEADER + 12 * number:
            raise ValueError(f"{len(raw)} bytes for {number} sentences")
        tokens = np.memmap(contents, _code_to_dtype[code], mode="r")
        sizes = np.frombuffer(raw, dtype="<i4", count=number, offset=HEADER).astype(np.int64)
        begins = np.frombuffer(raw, dtype="<i8", count=number, offset=HEADER + 4 * number)
    except UNREADABLE as error:
        raise UserError(f"{path}: unreadable .idx or .bin ({first_line(error)}); {again}") from error
    # fairseq trusts the index: from a truncated file, or that of another split, it would silently read wrong tokens.
    matching = np.array_equal(begins, (np.cumsum(sizes) - sizes) * tokens.itemsize) and not (sizes < 0).any()
    if (zero, version) != (0, 1) or tokens.dtype.kind not in "iu" or not matching or len(tokens) != sizes.sum():
        raise UserError(f"{path}: found {len(tokens)} tokens of type {tokens.dtype}, other than the .idx says; {again}")
    return tokens
