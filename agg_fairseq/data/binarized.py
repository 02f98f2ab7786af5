"""Folders written by `fairseq-preprocess`: dictionaries, splits, and the token counts of a split."""

import copy
import logging
import os
import re
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from ..errors import UserError, first_line

logger = logging.getLogger(__name__)

BLOCK_TOKENS, BLOCK_ITEMS = 2**24, 2**12  # tokens, or items, that are read at a time
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
        remedy = f"run fairseq-preprocess{' --only-source' * (file == 'dict.txt')}"
        if inner := sorted(path.parent.glob(f"*/{file}")):
            remedy = f"give the folder in it, {inner[0].parent}"
        raise UserError(f"{path}: unreadable ({first_line(error)}); {remedy}") from error


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


def training_counts(
    task: Any, split: str, max_positions: Any = None, epoch: int | None = None
) -> Tensor:
    """Counts each token as a target in what a task of fairseq trains on: `count_split`, without what
    the task skips or cuts off. (V,) int64, over its target dictionary. Of several workers, the first
    one counts, and tells the others.

    Args:
        task: with its options as `cfg` or `args`.
        split: of the training, --train-subset.
        max_positions: as of the task's `get_batch_iterator`; longer sentences are skipped.
        epoch: count only what this epoch has, a folder of several; None: all.

    Raises:
        UserError: the task does not say where its data is, or a split cannot be read.
    """
    found: list[Any] = [None]
    is_alone = not (torch.distributed.is_available() and torch.distributed.is_initialized())
    if is_alone or torch.distributed.get_rank() == 0:
        try:
            found = [_training_counts(task, split, max_positions, epoch)]
        except UserError as error:
            found = [error]
    if not is_alone:
        torch.distributed.broadcast_object_list(found)
    if isinstance(found[0], UserError):
        raise found[0]
    return found[0]


def _training_counts(task: Any, split: str, max_positions: Any, epoch: int | None) -> Tensor:
    options = getattr(task, "cfg", None) or task.args
    if not hasattr(options, "data"):  # examples/laser
        raise UserError(f"found no folder of data in the task {type(task).__name__}")
    languages = getattr(options, "source_lang", None), getattr(options, "target_lang", None)
    pair = languages if all(languages) else None
    upsampling = getattr(options, "upsample_primary", 1)
    shards = list(enumerate(folders(options.data), 1))
    dictionary = task.target_dictionary
    counts, total = torch.zeros(len(dictionary), dtype=torch.int64), 0
    for shard, folder in shards if epoch is None else [shards[(epoch - 1) % len(shards)]]:
        whole = count_split(folder, dictionary, split, pair, upsampling)
        counts += _count_kept(task, split, shard, max_positions, whole)
        total += int(whole.sum())
    trained = int(counts.sum())
    skips = f" of {total:,}, since training skips or cuts the others," if trained < total else ""
    logger.info(f"found {trained:,} target tokens{skips} in {split} of {options.data}")
    return counts


def _count_kept(task: Any, split: str, epoch: int, max_positions: Any, whole: Tensor) -> Tensor:
    """The counts (V,) of what the task yields in an epoch, whose files have the counts `whole`."""
    own = copy.copy(task)
    own.datasets = {}
    own.load_dataset(split, epoch=epoch, combine=True)
    dataset = own.dataset(split)
    sizes = getattr(dataset, "tgt_sizes", getattr(dataset, "sizes", None))
    if sizes is None:  # of a task of its own kind, such as streams of text
        return whole
    if isinstance(sizes, list):  # of a dictionary of datasets
        raise UserError(
            f"found the task {type(task).__name__}, whose targets are drawn anew in each epoch; "
            "expected language_modeling or translation"
        )
    kept, skipped = np.arange(len(dataset)), []
    if max_positions is not None:
        kept, skipped = dataset.filter_indices_by_size(kept, max_positions)
    # unless it cuts sentences, or adds tokens, such as --add-bos-token
    is_whole = int(sizes.sum()) == int(whole.sum()) and len(dataset[0]["target"]) == sizes[0]
    items, counts = skipped if is_whole else kept, torch.zeros_like(whole)
    for start in tqdm(range(0, len(items), BLOCK_ITEMS), "counting", leave=False, disable=None):
        block = [dataset[item]["target"] for item in items[start : start + BLOCK_ITEMS]]
        counts += torch.bincount(torch.cat(block), minlength=len(counts))
    if is_whole:
        return whole - counts
    counts[task.target_dictionary.pad()] = 0
    return counts


def count_split(
    data: str | Path,
    dictionary: Any,
    split: str = "train",
    languages: tuple[str, str] | None = None,
    upsample_primary: int = 1,
    *,
    combine: bool = True,
) -> Tensor:
    """The occurrences of each token, eos and unk included, in a split of one language, or of the
    target side of pairs: (V,) int64.

    Args:
        data: the folder, or several as `folders` takes them.
        dictionary: of the target side. Beyond the head of a larger one (--output-dictionary-size),
            tokens count as the unknown word, as in training.
        languages: source and target of pairs, in the order of their files or not.
        upsample_primary: how often the first of several parts of pairs counts.
        combine: count all folders and `split_parts`, as fairseq trains on; False: the first, as it
            evaluates.
    """
    whole = getattr(dictionary, "wrapped_dict", dictionary)
    occurrences = torch.zeros(len(whole), dtype=torch.int64)
    for folder in folders(data)[: None if combine else 1]:
        parts = split_parts(folder, split, languages)[: None if combine else 1]
        for part in parts:
            is_upsampled = languages is not None and len(parts) > 1 and part == parts[0]
            for block in read_tokens(part, whole):
                tokens = torch.from_numpy(block.astype(np.int32))  # NumPy counts int64 alone
                counts = torch.bincount(tokens, minlength=len(whole))
                occurrences += counts * (upsample_primary if is_upsampled else 1)
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
    """Whether a split, its path without `.bin`, is there, damaged or not: binarized, or as text."""
    return any(Path(f"{path}{suffix}").is_file() for suffix in ("", ".bin", ".idx"))


class Sentences(NamedTuple):
    """The sentences of a split, one after the other."""

    tokens: np.ndarray  # (n,) integers, their ends included
    ends: np.ndarray  # (m,) int64, where each of them ends
    numbers: tuple[int, ...] = ()  # of sentences, in each part of the split


def load_sentences(parts: Sequence[str | Path], dictionary: Any) -> Sentences:
    """The sentences of the parts of a split, as `read_tokens` reads them."""
    from fairseq.data import data_utils

    blocks, lengths = [], []
    for part in parts:
        blocks += read_tokens(part, dictionary)
        dataset = data_utils.load_indexed_dataset(str(part), dictionary)
        lengths.append(dataset.sizes.astype(np.int64))  # a copy, since its file is closed with it
    tokens = blocks[0] if len(blocks) == 1 else np.concatenate(blocks or [np.empty(0, np.int64)])
    return Sentences(tokens, np.cumsum(np.concatenate(lengths)), tuple(map(len, lengths)))


def read_tokens(path: str | Path, dictionary: Any) -> Iterator[np.ndarray]:
    """The tokens of a split, its path without `.bin`, ends of lines included, in blocks (n,) of
    integers; UserError if it is damaged or of another dictionary."""
    from fairseq.data import indexed_dataset

    path, again = Path(path), "run fairseq-preprocess again"
    kind = indexed_dataset.infer_dataset_impl(str(path)) or "mmap"
    if not indexed_dataset.dataset_exists(str(path), kind):
        raise UserError(
            f"{path.parent}: found no split {path.name!r}; expected {path.name}.bin and "
            f"{path.name}.idx"
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
    for start in tqdm(starts, f"reading {path.name}", leave=False, disable=None):
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
