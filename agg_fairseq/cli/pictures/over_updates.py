"""How the embeddings change in the course of a training, seen at the checkpoints of a run."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator

from tqdm import tqdm

from ...errors import UserError
from ...metrics import FrequencyGroups
from ..checkpoints import check_vocabulary
from ..embeddings import Embeddings, add_vocabulary, load_embeddings, load_vocabulary
from ..naming import names_of, own_name
from ..runs import checkpoints_by_update

Measure = Callable[[Embeddings, FrequencyGroups], list[float]]
Curves = tuple[list[int], list[list[float]]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where the frequencies come from."""
    add_vocabulary(parser)


def curves(arguments: argparse.Namespace, measure: Measure) -> Iterator[tuple[str, Curves]]:
    """For each run its name, the updates at which it saved a checkpoint, and what was measured of each there.

    Raises:
        UserError: a run with fewer than two checkpoints.
    """
    runs = [checkpoints_by_update(run) for run in arguments.inputs]
    for run, checkpoints in zip(arguments.inputs, runs, strict=True):
        if len(checkpoints) < 2:
            raise UserError(
                f"{run}: found the checkpoints of {len(checkpoints)} update; expected two or more; train with "
                "--save-interval-updates"
            )
    vocabulary = load_vocabulary([str(checkpoints[0][1]) for checkpoints in runs], arguments.data)
    groups = vocabulary.groups(arguments.groups)
    names = names_of(arguments.inputs, arguments.name, own_name)
    for name, checkpoints in zip(names, runs, strict=True):
        values = []
        for _, path in tqdm(checkpoints, desc=name, unit="checkpoint", disable=None, leave=False):
            embeddings = load_embeddings(path)
            check_vocabulary(path, embeddings.weight, arguments.data, len(vocabulary.dictionary))
            values.append(measure(embeddings, groups))
        yield name, ([updates for updates, _ in checkpoints], values)
