"""How often each token is a target in the training set: counted once, and kept beside the run."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import first_line
from ..files import write_whole
from ..workers import is_first_worker
from .binarized import count_tokens, target_splits

logger = logging.getLogger(__name__)

FILE = "target-token-counts.npz"


def training_counts(task: Any, split: str, folder: str | Path | None) -> Tensor:
    """The occurrences of each token as a target in the binarised training split, on the target side.

    Args:
        task: fairseq's language_modeling or translation task.
        split: name of the training split.
        folder: of the run; the counts are kept there in `target-token-counts.npz` and read back as long as the
            binarised files are the same. None, or a folder that is not on this machine's disks, keeps nothing.

    Returns:
        (V,) int64 over the target dictionary. Where a language model predicts a part of its dictionary only, what is
        beyond counts as the unknown word, as it does in training.

    Raises:
        UserError: as `corpus.target_splits` and `corpus.count_tokens`.
    """
    paths = target_splits(task, split)
    source = "\n".join([_fingerprint(path) for path in paths] + [str(len(task.target_dictionary))])
    cache = None if folder is None or "://" in str(folder) else Path(folder) / FILE
    counts = _read(cache, source, len(task.target_dictionary)) if cache is not None and cache.is_file() else None
    if counts is None:
        logger.info(f"counting the target tokens of {len(paths)} training file(s): {paths[0]}.bin …")
        counts = _folded(sum(count_tokens(p.parent, _dictionary(task), p.name) for p in paths), task.target_dictionary)
        logger.info(f"counted {int(counts.sum()):,} target tokens")
        if cache is not None and is_first_worker():
            write_whole(cache, lambda temporary: np.savez(temporary, source=source, counts=counts.numpy()))
    return counts


def _fingerprint(path: Path) -> str:
    status = Path(f"{path}.bin").stat()
    return f"{path.resolve()} {status.st_size} {status.st_mtime_ns}"


def _dictionary(task: Any) -> Any:
    """The dictionary that the files were binarised with: a language model may predict only its head."""
    return getattr(task, "dictionary", None) or task.target_dictionary


def _folded(counts: Tensor, dictionary: Any) -> Tensor:
    head = counts[: len(dictionary)].clone()
    head[dictionary.unk()] += counts[len(dictionary) :].sum()
    return head


def _read(path: Path, source: str, vocabulary: int) -> Tensor | None:
    """The kept counts (V,), None where they are of other files."""
    try:
        with np.load(path, allow_pickle=False) as kept:
            if str(kept["source"]) != source:
                return None
            counts = kept["counts"]
    except Exception as error:  # whatever numpy, zipfile and zlib raise over a damaged file
        logger.warning(f"{path}: unreadable ({first_line(error)}); counting again")
        return None
    if counts.shape != (vocabulary,) or counts.dtype != np.int64 or (counts < 0).any():
        logger.warning(f"{path}: found no counts of {vocabulary} tokens; counting again")
        return None
    return torch.from_numpy(counts)
