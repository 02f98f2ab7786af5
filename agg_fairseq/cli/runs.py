"""Moved to `agg_fairseq.checkpoint.checkpoints_of_run`."""

from __future__ import annotations

from pathlib import Path

from ..checkpoint import checkpoints_of_run


def checkpoints_by_update(run: str | Path) -> list[tuple[int, Path]]:
    """The number of updates and the path of each checkpoint of a run."""
    return [(checkpoint.updates, checkpoint.path) for checkpoint in checkpoints_of_run(run)]
