"""Stages of a long preparation: each makes a folder, whole or not at all, and is skipped where it is made."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from agg_fairseq.errors import UserError

SETTINGS = "settings.json"


def stage(folder: Path, settings: Mapping[str, object], make: Callable[[Path], object]) -> bool:
    """Lets `make` fill an empty folder beside `folder`, and renames it when it is complete.

    Args:
        folder: that exists if and only if it is complete.
        settings: all that its content depends on, as JSON can say it.
        make: fills the folder it is given.

    Returns:
        Whether anything had to be made.

    Raises:
        UserError: the folder was made with other settings.
    """
    if is_made(folder, settings):
        return False
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    make(partial)
    (partial / SETTINGS).write_text(json.dumps(dict(settings), indent=2) + "\n", encoding="utf-8")
    partial.replace(folder)
    return True


def is_made(folder: Path, settings: Mapping[str, object]) -> bool:
    """Whether a stage has made its folder.

    Raises:
        UserError: something else has, or with other settings.
    """
    if not folder.exists():
        return False
    try:
        found = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(
            f"{folder}: found no {SETTINGS} in it, so it is not of this script, or damaged; remove it or name another "
            "folder"
        ) from error
    check_same(folder, found, settings)
    return True


def check_same(folder: Path, found: object, settings: Mapping[str, object]) -> None:
    """Sees that a folder was made with the wanted settings.

    Args:
        folder: as a message names it.
        found: what its file says, of whatever kind.
        settings: the wanted ones, as JSON can say them.

    Raises:
        UserError: it was not; the message has those that differ.
    """
    wanted = json.loads(json.dumps(dict(settings)))
    if not isinstance(found, dict):
        raise UserError(
            f"{folder}: found the settings {found!r}; expected those of this script; remove it or name another folder"
        )
    if found != wanted:
        other = {key: found.get(key) for key in sorted({*found, *wanted}) if found.get(key) != wanted.get(key)}
        raise UserError(f"{folder} was prepared with other settings ({other}); remove it or name another folder")


@contextlib.contextmanager
def made_again_if_lost() -> Iterator[None]:
    """Tells what to do where a file of an earlier stage was lost afterwards.

    Raises:
        UserError: in the place of the error of whoever wanted to read it.
    """
    try:
        yield
    except FileNotFoundError as error:
        folder = Path(error.filename or "").parent
        if not (folder / SETTINGS).is_file():
            raise
        raise UserError(
            f"found no {error.filename}; expected what an earlier stage made; remove the folder {folder} and run it "
            "again"
        ) from error
