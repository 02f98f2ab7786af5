"""Stages of a long preparation: each makes a folder, whole or not at all, and is skipped where it is made."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
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
    wanted = json.loads(json.dumps(dict(settings)))
    if folder.exists():
        found = _settings(folder)
        if found == wanted:
            return False
        other = {key: found.get(key) for key in {*found, *wanted} if found.get(key) != wanted.get(key)}
        raise UserError(f"{folder} was made with other settings ({other}); remove it or name another folder")
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    make(partial)
    (partial / SETTINGS).write_text(json.dumps(wanted, indent=2) + "\n", encoding="utf-8")
    partial.replace(folder)
    return True


def _settings(folder: Path) -> dict[str, object]:
    try:
        return json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(
            f"{folder}: found no {SETTINGS} in it, so it is not of this script; name another folder"
        ) from error


def sha256(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for chunk in iter(lambda: file.read(1 << 20), b""):
            digest.update(chunk)
    return digest.hexdigest()


def lines(path: Path) -> int:
    """How many lines a file has."""
    with open(path, "rb") as file:
        return sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(1 << 20), b""))
