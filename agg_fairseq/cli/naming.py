"""Names of the things that are compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ..errors import UserError

HUMAN = "human"
"""The row of the human texts."""


def folder_of(path: str) -> str:
    """The name of the folder that a file is in."""
    return Path(path).resolve().parent.name


def own_name(path: str) -> str:
    """The name of a folder."""
    return Path(path).resolve().name


def stem(path: str) -> str:
    """The name of a file, without its ending."""
    return Path(path).stem


def names_of(paths: Sequence[str], given: Sequence[str] | None, default: Callable[[str], str] = folder_of) -> list[str]:
    """A name per file: those given, or what `default` makes of the paths, or, where that repeats, the paths.

    Raises:
        UserError: another number of names than of files; a name, or a file, that is there twice.
    """
    if given and len(given) != len(paths):
        raise UserError(f"--name: found {len(given)} names for {len(paths)} files; give one name each")
    names = list(given) if given else [default(path) for path in paths]
    if not given and len(set(names)) < len(names):
        names = [str(path) for path in paths]
    twice = next((name for index, name in enumerate(names) if name in names[:index]), None)
    if twice is not None:
        what = f"--name: found the name {twice!r}" if given else f"found {twice}"
        raise UserError(f"{what} twice; expected each once")
    return names


def numbered(paths: Sequence[str], given: Sequence[str] | None) -> Iterator[tuple[int, str, str]]:
    """The number, the name and the path of each file; as `names_of`."""
    return ((number, *pair) for number, pair in enumerate(zip(names_of(paths, given), paths, strict=True)))
