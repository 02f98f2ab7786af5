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
            no target, and neither is −100; of `input_ids`, nor is what `attention_mask` leaves out, if there is one.
        vocabulary: V; a token outside [0, V) is an error of PyTorch.

    Examples:
        >>> padded = {"input_ids": [0, 2, 1, 1], "attention_mask": [1, 1, 0, 0]}
        >>> label_counts([{"input_ids": [1, 2, 2]}, {"labels": [0, -100, 3]}, padded], vocabulary=4).tolist()
        [0, 0, 3, 1]
    """
    counts = torch.zeros(vocabulary, dtype=torch.int64)
    for example in dataset:
        if "labels" in example:
            tokens = torch.as_tensor(example["labels"])
        else:
            tokens = torch.as_tensor(example["input_ids"])
            if "attention_mask" in example:
                tokens = tokens.masked_fill(torch.as_tensor(example["attention_mask"]) == 0, IGNORED)
        tokens = tokens[1:]
        counts += torch.bincount(tokens[tokens != IGNORED], minlength=vocabulary)
    return counts
