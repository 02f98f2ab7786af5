"""The frequency classes of a model that is being built, from the training data of its task."""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import Tensor

from ..errors import UserError
from ..functional.frequency_classes import equal_frequency, equal_token, mean_efficiency, mefmax
from ..training_counts import training_counts
from .f2_options import ASSIGNMENTS

logger = logging.getLogger(__name__)

FIXED = {"equal-frequency": equal_frequency, "equal-token": equal_token}


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
    if assignment not in ASSIGNMENTS:
        raise ValueError(f"--f2-assignment: expected {', '.join(ASSIGNMENTS)}, got {assignment!r}")
    if (assignment == "mefmax") != (number == 0):
        needed = "no --f2-classes, since it finds their number" if number else "--f2-classes, the number of classes"
        raise ValueError(f"--f2-assignment {assignment}: expected {needed}, got --f2-classes {number}")
    counts = training_counts(task, split, None)
    classes = mefmax(counts) if assignment == "mefmax" else FIXED[assignment](counts, number)
    sizes = torch.bincount(classes).tolist()
    logger.info(
        f"{assignment}: {len(sizes)} frequency classes of {', '.join(map(str, sizes))} tokens, mean efficiency "
        f"{mean_efficiency(counts, classes):.4f} of 2"
    )
    return classes


def classes_or_placeholder(assignment: str, number: int, task: Any, split: str) -> tuple[Tensor, str | None]:
    """As `frequency_classes`; without training data one class of all tokens, until a checkpoint's take its place.

    Returns:
        the class of each token, and the reason why they are only a placeholder, or None.
    """
    try:
        return frequency_classes(assignment, number, task, split), None
    except UserError as error:
        return torch.zeros(len(task.target_dictionary), dtype=torch.int64), str(error)
