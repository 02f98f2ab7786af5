"""What lies in the folder of a run of fairseq-train: its checkpoints, in the order of their updates."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import UserError
from .checkpoints import open_model


def checkpoints_by_update(run: str | Path) -> list[tuple[int, Path]]:
    """The number of updates and the path of each `checkpoint*.pt` in a folder, one for each number of updates.

    Raises:
        UserError: there is no such folder, no checkpoint in it, or one of them is not readable.
    """
    folder = Path(run)
    if not folder.is_dir():
        raise UserError(f"{run}: found no such folder; expected that of a run, with its checkpoints")
    found = dict(sorted(_updates(folder)))
    if not found:
        raise UserError(f"{run}: found no checkpoint*.pt in it; expected the --save-dir of fairseq-train")
    return list(found.items())


def _updates(folder: Path) -> Iterator[tuple[int, Path]]:
    for path in sorted(folder.glob("checkpoint*.pt")):
        yield updates_of(open_model(path), path), path


def updates_of(state: dict[str, Any], path: str | Path) -> int:
    """After how many updates a checkpoint was saved; 0 where it does not say so.

    Raises:
        UserError: it says something that is no number.
    """
    history = state.get("optimizer_history") or [{}]
    updates = history[-1].get("num_updates", 0)
    if not isinstance(updates, int):
        raise UserError(f"{path}: found {updates!r} for the number of its updates; expected a whole number")
    return updates
