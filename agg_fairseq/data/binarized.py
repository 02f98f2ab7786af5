"""Folders written by `fairseq-preprocess`: dictionaries, splits, and the token counts of a split."""

import logging
import os
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from ..errors import UserError, first_line

logger = logging.getLogger(__name__)

BLOCK_TOKENS = 2**24  # tokens that are read at a time
FILLER = re.compile(r"madeupword\d{4,}")
"""The entries by which fairseq makes the length of a dictionary a multiple of 8."""
INDEX_HEADER = 26  # bytes of an .idx before the sizes


def load_dictionary(data: str | Path, file: str = "dict.txt") -> Any:
    """fairseq's dictionary of a folder, or of a language, such as `dict.de.txt`."""
    from fairseq.data import Dictionary

    path = folders(data)[0] / file
    try:
        return Dictionary.load(str(path))
    # fairseq raises a bare one for a bad line, and for bytes that are not UTF-8
    except Exception as error:
        option = " --only-source" if file == "dict.txt" else ""
        raise UserError(
            f"{path}: unreadable ({first_line(error)}); run fairseq-preprocess{option}"
        ) from error


def training_pair(
    data: str | Path, source: str | None = None, target: str | None = None
) -> tuple[str, str]:
    """The languages X and Y of train.X-Y.X.bin in a folder; a given one must be the same."""
    pairs = []
    for path in sorted(folders(data)[0].glob("*.bin")):
        if match := re.fullmatch(r"train\.([^.]+)-([^.]+)\.\1\.bin", path.name):
            pairs.append((match[1], match[2]))
    fitting = [pair for pair in pairs if source in (None, pair[0]) and target in (None, pair[1])]
    if len(fitting) != 1:
        found = ", ".join(map("-".join, fitting or pairs)) or "no language pair"
        expected = f"train.{source or 'X'}-{target or 'Y'}.{source or 'X'}.bin"
        raise UserError(f"{data}: found {found}; expected one {expected} of fairseq-preprocess")
    return fitting[0]


def excluded_tokens(dictionary: Any) -> Tensor:
    """(V,) bool, the special symbols and the fillers of the dictionary, which are in no frequency
    group and never rare."""
    excluded = torch.zeros(len(dictionary), dtype=torch.bool)
    excluded[: dictionary.nspecial] = True
    # A dictionary that --output-dictionary-size truncates keeps all symbols, V of them in use.
    for row, symbol in enumerate(dictionary.symbols[: len(dictionary)]):
        if not dictionary.count[row] and FILLER.fullmatch(symbol):
            excluded[row] = True
    return excluded


def training_counts(task: Any, split: str) -> Tensor:
    """`count_split` with the data and the options of a task: (V,) over its target dictionary."""
    options = getattr(task, "cfg", None) or task.args
    languages = getattr(options, "source_lang", None), getattr(options, "target_lang", None)
    counts = count_split(
        options.data,
        task.target_dictionary,
        split,
        languages if all(languages) else None,
        getattr(options, "upsample_primary", 1),
    )
    logger.info(f"found {int(counts.sum()):,} target tokens in {split} of {options.data}")
    return counts


def count_split(
    data: str | Path,
    dictionary: Any,
    split: str = "train",
    languages: tuple[str, str] | None = None,
    upsample_primary: int = 1,
) -> Tensor:
    """The occurrences of each token as a target in all `folders` and `split_parts` of a split: (V,)
    int64.

    Args:
        data: the folder, or several as `folders` takes them.
        dictionary: of the target side. Beyond the head of a larger one (--output-dictionary-size),
            tokens count as the unknown word, as in training.
        languages: source and target of a translation model; None for a language model.
        upsample_primary: how often the first of several parts counts, for a translation model.
    """
    whole = getattr(dictionary, "wrapped_dict", dictionary)
    occurrences = torch.zeros(len(whole), dtype=torch.int64)
    for folder in folders(data):
        parts = split_parts(folder, split, languages)
        for part in parts:
            is_upsampled = languages is not None and len(parts) > 1 and part == parts[0]
            times = upsample_primary if is_upsampled else 1
            occurrences += times * count_tokens(folder, whole, part.name)
    counts = occurrences[: len(dictionary)].clone()
    counts[dictionary.unk()] += occurrences[len(dictionary) :].sum()
    return counts


def folders(data: str | Path) -> list[Path]:
    """The folders of a data set, joined by colons if it is in several shards."""
    return [Path(folder) for folder in str(data).split(os.pathsep)]


def split_parts(
    folder: str | Path, split: str, languages: tuple[str, str] | None = None
) -> list[Path]:
    """A split and its continuations `split1`, `split2`, …, without `.bin`; of a parallel one the
    target side, in either direction. If nothing is there, the path of the first one."""
    suffixes = [""]
    if languages is not None:
        source, target = languages
        suffixes = [f".{source}-{target}.{target}", f".{target}-{source}.{target}"]
    parts: list[Path] = []
    while True:
        paths = [Path(folder) / f"{split}{len(parts) or ''}{suffix}" for suffix in suffixes]
        path = next(filter(has_split, paths), None)
        if path is None:
            return parts or paths[:1]
        parts.append(path)


def has_split(path: str | Path) -> bool:
    """Whether a split, its path without `.bin`, is there, in any of fairseq's formats."""
    from fairseq.data.indexed_dataset import infer_dataset_impl

    return infer_dataset_impl(str(path)) is not None


def count_tokens(data: str | Path, dictionary: Any, split: str = "train") -> Tensor:
    """Occurrences of each token in a split, eos and unk included: (V,) int64. A parallel split is
    named with its side, such as `train.en-de.de`."""
    counts = np.zeros(len(dictionary), dtype=np.int64)
    for block in read_tokens(data, dictionary, split):
        counts += np.bincount(block, minlength=len(counts))
    return torch.from_numpy(counts)


def load_sentences(data: str | Path, dictionary: Any, split: str) -> Any:
    """fairseq's data set of a split, whose item i is a tensor (n,), the tokens of sentence i."""
    from fairseq.data import data_utils

    count_tokens(data, dictionary, split)  # refuses damaged files
    return data_utils.load_indexed_dataset(str(folders(data)[0] / split), dictionary)


def read_tokens(data: str | Path, dictionary: Any, split: str) -> Iterator[np.ndarray]:
    """The tokens of a split, ends of lines included, in blocks (n,) of integers; UserError if it is
    damaged or of another dictionary."""
    from fairseq.data import indexed_dataset

    path, again = folders(data)[0] / split, "run fairseq-preprocess again"
    kind = indexed_dataset.infer_dataset_impl(str(path)) or "mmap"
    if not indexed_dataset.dataset_exists(str(path), kind):
        raise UserError(
            f"{path.parent}: found no split {split!r}; expected {split}.bin and {split}.idx"
        )
    try:
        if kind == "mmap":
            tokens = _map_tokens(path)
        else:  # an older format, which fairseq reads sentence by sentence
            kind = "lazy" if kind == "cached" else kind  # of the same files
            dataset = indexed_dataset.make_dataset(str(path), kind, True, dictionary)
            if kind == "lazy":  # fairseq would make up what the .bin lacks
                found = Path(f"{path}.bin").stat().st_size
                expected = dataset.data_offsets[-1] * dataset.element_size
                if found != expected:
                    raise ValueError(f"{found} bytes, where the .idx says {expected}")
            sentences = [dataset[index].numpy() for index in range(len(dataset))]
            tokens = np.concatenate([np.empty(0, dtype=np.int64), *sentences])
    except Exception as error:  # whatever a damaged index makes struct, numpy or fairseq do
        raise UserError(
            f"{path}: unreadable .idx or .bin ({first_line(error)}); {again}"
        ) from error
    starts = range(0, len(tokens), BLOCK_TOKENS)
    for start in tqdm(starts, f"reading {split}", leave=False, disable=None):
        block = tokens[start : start + BLOCK_TOKENS]
        for token in (int(block.min()), int(block.max())):
            if not 0 <= token < len(dictionary):
                raise UserError(
                    f"{path}: found token {token}, beyond all {len(dictionary)}; {again}"
                )
        yield block


def _map_tokens(path: Path) -> np.ndarray:
    """All tokens of a split, mapped from its .bin, if that is as its .idx says: fairseq trusts the
    index, and would silently read wrong tokens by that of another split."""
    from fairseq.data import indexed_dataset

    raw = Path(f"{path}.idx").read_bytes()
    magic, version, code, number = struct.unpack_from("<9sQBQ", raw)
    tokens = np.memmap(f"{path}.bin", indexed_dataset._code_to_dtype[code], mode="r")
    sizes = np.frombuffer(raw, "<i4", number, offset=INDEX_HEADER).astype(np.int64)
    begins = np.frombuffer(raw, "<i8", number, offset=INDEX_HEADER + 4 * number)
    is_whole = (
        (magic, version) == (b"MMIDIDX\x00\x00", 1)
        and tokens.dtype.kind in "iu"
        and len(raw) == INDEX_HEADER + 12 * number
        and len(tokens) == sizes.sum()
        and not (sizes < 0).any()
        and np.array_equal(begins, (np.cumsum(sizes) - sizes) * tokens.itemsize)
    )
    if not is_whole:
        raise ValueError(f"{len(tokens)} tokens of type {tokens.dtype}, other than the .idx says")
    return tokens
