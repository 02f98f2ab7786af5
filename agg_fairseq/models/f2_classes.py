"""The frequency classes of a model that is being built, from the training data of its task."""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import Tensor

from ..errors import UserError
from ..functional.frequency_classes import assign_classes, mean_efficiency
from ..training_counts import training_counts

logger = logging.getLogger(__name__)


def frequency_classes(assignment: str, number: int, task: Any, split: str) -> Tensor:
    """The class of each token of the target dictionary, from target-side training counts.

    Args:
        assignment: `mefmax`, `equal-frequency` or `equal-token`.
        number: C for the last two; 0 for `mefmax`.
        task: fairseq's language_modeling or translation task.
        split: name of the training split.

    Returns:
        (V,) int64 in [0, C).

    Raises:
        ValueError: an unknown assignment, a number that does not go with it, or one that leaves a class empty.
        UserError: there is no training data to count.
    """
    counts = training_counts(task, split, None)
    classes = assign_classes(assignment, number, counts)
    sizes = torch.bincount(classes).tolist()
    logger.info(
        f"{assignment}: {len(sizes)} frequency classes of {', '.join(map(str, sizes))} tokens, mean efficiency "
        f"{mean_efficiency(counts, classes):.4f} of 2"
    )
    return classes


def classes_or_placeholder(assignment: str, number: int, task: Any, split: str) -> tuple[Tensor, str | None]:
    """As `frequency_classes`; where it raises, one class of all tokens, until a checkpoint's take its place.

    There may be no training data beside a checkpoint, or other data, which would not bear its number of classes.

    Returns:
        the class of each token, and the reason why they are only a placeholder, or None.
    """
    try:
        return frequency_classes(assignment, number, task, split), None
    except (UserError, ValueError) as error:
        return torch.zeros(len(task.target_dictionary), dtype=torch.int64), str(error)
