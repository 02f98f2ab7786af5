"""Names of the things that a table compares."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .errors import UserError

HUMAN = "human"  # the row of the human texts
UNIGRAM = "unigram"  # the row of a model that always predicts the training frequencies


def unique_names(paths: Sequence[str | Path], names: Sequence[str] | None, default: str = "folder") -> list[str]:
    """Unique names of files or folders: those that the user gave, if any.

    By default a path is named after the "folder" that it lies in, its own "name", or its "stem", that without the
    ending. Where two would be the same, all are named by their paths.
    """
    if names and len(names) != len(paths):
        raise UserError(f"--name: found {len(names)} names for {len(paths)} files; give one name each")
    if names:
        chosen = list(names)
    else:
        full = [(path, path.resolve()) for path in map(Path, paths)]
        chosen = [{"folder": real.parent.name, "name": real.name, "stem": path.stem}[default] for path, real in full]
        chosen = chosen if len(set(chosen)) == len(chosen) else [str(path) for path in paths]
    twice = next((name for index, name in enumerate(chosen) if name in chosen[:index]), None)
    if twice is not None:
        what = f"--name: found the name {twice!r}" if names else f"found {twice}"
        raise UserError(f"{what} twice; expected each once")
    return chosen
