"""How often each token is a target in the training set: counted once, and kept in the folder of the run."""

from __future__ import annotations

import io
import logging
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..data.binarized import count_tokens, target_splits
from ..errors import first_line
from ..files import write_whole
from .distributed import is_first_worker

logger = logging.getLogger(__name__)

FILE = "target-token-counts.npz"


def training_counts(task: Any, split: str, folder: str | Path | None) -> Tensor:
    """The occurrences of each token as a target in the binarized training split, on the target side.

    Args:
        task: fairseq's language_modeling or translation task.
        split: name of the training split.
        folder: of the run; the counts are kept there in `target-token-counts.npz` and read back as long as the
            binarized files are the same. None, or a folder that is not on this machine's disks, keeps nothing.

    Returns:
        (V,) int64 over the target dictionary. If a language model predicts only a part of its dictionary, the other
        tokens count as the unknown word, as they do in training.

    Raises:
        UserError: as `target_splits` and `count_tokens`.
    """
    paths, dictionary = target_splits(task, split), task.target_dictionary
    files = [(path.resolve(), Path(f"{path}.bin").stat()) for path in paths]
    fingerprints = [f"{path} {status.st_size} {status.st_mtime_ns}" for path, status in files]
    source = "\n".join([*fingerprints, str(len(dictionary))])
    cache = None if folder is None or "://" in str(folder) else Path(folder) / FILE
    counts = _read(cache, source, len(dictionary)) if cache is not None and cache.is_file() else None
    if counts is not None:
        logger.info(f"reading the counts of the target tokens from {cache}")
    else:
        logger.info(f"counting the target tokens of {len(paths)} training file(s): {paths[0]}.bin …")
        # The files may have been binarized with a larger dictionary: a language model may predict only its head.
        whole = getattr(task, "dictionary", None) or dictionary
        occurrences = sum(count_tokens(path.parent, whole, path.name) for path in paths)
        counts = occurrences[: len(dictionary)].clone()
        counts[dictionary.unk()] += occurrences[len(dictionary) :].sum()
        if cache is not None and is_first_worker():
            packed = io.BytesIO()  # a zip file that cannot be written complains once more when it is collected
            np.savez(packed, source=source, counts=counts.numpy())
            write_whole(cache, lambda temporary: temporary.write_bytes(packed.getvalue()))
    logger.info(f"found {int(counts.sum()):,} target tokens")
    return counts


def _read(path: Path, source: str, vocabulary: int) -> Tensor | None:
    """The kept counts (V,), or None if they are damaged or were counted in other files."""
    try:
        with np.load(path, allow_pickle=False) as kept:
            counts = torch.from_numpy(kept["counts"]) if str(kept["source"]) == source else None
        if counts is not None and (counts.shape != (vocabulary,) or counts.dtype != torch.int64 or (counts < 0).any()):
            raise ValueError(f"found no counts of {vocabulary} tokens")
    except Exception as error:  # whatever numpy, zipfile and zlib raise for a damaged file
        logger.warning(f"{path}: unreadable ({first_line(error)}); counting again")
        return None
    return counts
