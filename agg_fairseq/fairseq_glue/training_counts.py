"""How often each token is a target in a split."""

from __future__ import annotations

import logging
from typing import Any

from torch import Tensor

from ..data.binarized import count_tokens, target_splits

logger = logging.getLogger(__name__)


def training_counts(task: Any, split: str) -> Tensor:
    """The occurrences of each token as a target in a binarized split: (V,) int64 over the target dictionary.

    Of a language_modeling or translation task. If a language model predicts only a part of its dictionary, the other
    tokens count as the unknown word, as they do in training.
    """
    paths, dictionary = target_splits(task, split), task.target_dictionary
    logger.info(f"counting the target tokens of {len(paths)} file(s): {paths[0]}.bin …")
    whole = getattr(task, "dictionary", None) or dictionary  # that of --output-dictionary-size is its head
    occurrences = sum(count_tokens(path.parent, whole, path.name) for path in paths)
    counts = occurrences[: len(dictionary)].clone()
    counts[dictionary.unk()] += occurrences[len(dictionary) :].sum()
    logger.info(f"found {int(counts.sum()):,} target tokens")
    return counts
