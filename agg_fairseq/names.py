"""Names of the things that a table compares."""

from collections.abc import Sequence
from pathlib import Path

from .errors import UserError

HUMAN = "human"  # the row of the human texts
UNIGRAM = "unigram"  # the row of a model that always predicts the training frequencies


def unique_names(
    paths: Sequence[str | Path], names: Sequence[str] | None, default: str = "folder"
) -> list[str]:
    """Unique names of files or folders: those that the user gave, if any.

    By `default` a path is named after the "folder" that it lies in, by its own "name", or by its
    "stem". Where two would be the same, all are named by their paths.
    """
    if not names:
        names = []
        for path in map(Path, paths):
            real = path.resolve()
            kinds = {"folder": real.parent.name, "name": real.name, "stem": path.stem}
            names.append(kinds[default])
        if len(set(names)) < len(names):
            names = list(map(str, paths))
    if len(names) != len(paths) or len(set(names)) < len(names):
        raise UserError(
            f"--name: found {', '.join(names)}; expected a name for each of "
            f"{len(paths)} files, each once"
        )
    return list(names)
