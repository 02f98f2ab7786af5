"""The frequency classes of a model that is being built, from the training data of its task."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..checkpoint import Checkpoint
from ..data.training_counts import training_counts
from ..errors import UserError
from ..functional.frequency_classes import assign_classes, mean_efficiency
from ..restoring import restored_checkpoint

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


def classes_or_placeholder(options: Any, task: Any) -> tuple[Tensor, str | None]:
    """The classes of the checkpoint that training will start from, else those of the training data.

    Where there are neither, one class of all tokens, until a checkpoint's take its place: beside a checkpoint that is
    only used there may be no training data, or other data, which would not bear its number of classes.

    Args:
        options: those of `F2Options`, and `train_subset`, `save_dir`, `restore_file`, `finetune_from_model`.
        task: fairseq's language_modeling or translation task.

    Returns:
        the class of each token, and the reason why they are only a placeholder, or None.
    """
    restored = _classes_of(restored_checkpoint(options), len(task.target_dictionary))
    if restored is not None:
        return restored, None
    try:
        return frequency_classes(str(options.f2_assignment), options.f2_classes, task, options.train_subset), None
    except (UserError, ValueError) as error:
        return torch.zeros(len(task.target_dictionary), dtype=torch.int64), str(error)


def _classes_of(checkpoint: Path | None, vocabulary: int) -> Tensor | None:
    """What a checkpoint says; None where it says nothing that fits. fairseq opens it next, and tells what is wrong."""
    try:
        state = {} if checkpoint is None else Checkpoint(checkpoint).parameters
    except UserError as error:
        logger.warning(f"could not read the frequency classes of the checkpoint: {error}")
        return None
    found = state.get("decoder.output_projection.class_of_token")
    return found.long() if found is not None and len(found) == vocabulary else None
