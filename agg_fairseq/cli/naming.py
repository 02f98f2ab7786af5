"""Names of the things that are compared."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..errors import UserError


def names_of(paths: Sequence[str], given: Sequence[str] | None) -> list[str]:
    """A name per file: those given, or the folders that the files are in, or, where those repeat, the paths.

    Raises:
        UserError: another number of names than of files.
    """
    names = list(given) if given else [Path(path).resolve().parent.name for path in paths]
    if len(names) != len(paths):
        raise UserError(f"--name: found {len(names)} names for {len(paths)} files; give one name each")
    return names if len(set(names)) == len(names) else [str(path) for path in paths]
