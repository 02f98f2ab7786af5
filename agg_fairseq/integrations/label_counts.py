"""Training counts of the datasets that transformers trains on."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

IGNORED = -100
"""Label of the positions without a target."""


def label_counts(dataset: Iterable[Mapping[str, Any]], vocabulary: int) -> Tensor:
    """How often each token is a target in a dataset of a causal language model, (V,) int64, for `agps_counts`.

    Args:
        dataset: examples with `labels` or else `input_ids`, a sequence of tokens each. The first token of a sequence is
            no target, and neither is −100.
        vocabulary: V; a token outside [0, V) is a ValueError.

    Examples:
        >>> label_counts([{"input_ids": [1, 2, 2]}, {"labels": [0, -100, 3]}], vocabulary=4).tolist()
        [0, 0, 2, 1]
    """
    counts = torch.zeros(vocabulary, dtype=torch.int64)
    for example in dataset:
        tokens = torch.as_tensor(example["labels"] if "labels" in example else example["input_ids"])[1:]
        tokens = tokens[tokens != IGNORED]
        if len(tokens) and not 0 <= int(tokens.min()) <= int(tokens.max()) < vocabulary:
            raise ValueError(f"label_counts: expected tokens in [0, {vocabulary}), got {int(tokens.max())}")
        counts += torch.bincount(tokens, minlength=vocabulary)
    return counts
