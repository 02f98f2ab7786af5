"""Names of the things that a table compares."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .errors import UserError

HUMAN = "human"
"""The row of the human texts."""


def unique_names(paths: Sequence[str | Path], names: Sequence[str] | None, default: str = "folder") -> list[str]:
    """A name for each file or folder, each once.

    Args:
        paths: of what is compared.
        names: those that the user gave, or None.
        default: what to name a path after where none were given: "folder", the one that the file lies in; "name", its
            own; "stem", its own without the ending. Where two would be the same, all are named by their paths.
    """
    if names and len(names) != len(paths):
        raise UserError(f"--name: found {len(names)} names for {len(paths)} files; give one name each")
    if names:
        found = list(names)
    elif default == "folder":
        found = [Path(path).resolve().parent.name for path in paths]
    elif default == "name":
        found = [Path(path).resolve().name for path in paths]
    else:
        found = [Path(path).stem for path in paths]
    if not names and len(set(found)) < len(found):
        found = [str(path) for path in paths]
    twice = next((name for index, name in enumerate(found) if name in found[:index]), None)
    if twice is not None:
        what = f"--name: found the name {twice!r}" if names else f"found {twice}"
        raise UserError(f"{what} twice; expected each once")
    return found
