"""What is kept between two reports of the same runs: a measurement is made again only where something has changed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ... import __version__
from ...errors import UserError
from ...files import write_json
from ..measured import Measured


@dataclass(frozen=True)
class Kept:
    """A folder of measurements.

    Args:
        folder: is made when something is kept.
    """

    folder: Path

    def measured(self, name: str, key: Any, measure: Callable[[], Measured]) -> Measured:
        """What was measured under this name if the key is still the same; else it is measured, and kept."""
        path = self.folder / f"{name}.json"
        found = _read(path)
        if found.get("key") == key:
            return Measured(**found["measured"])
        measured = measure()
        write_json(path, {"key": key, "measured": asdict(measured)})
        return measured

    def file(self, name: str, key: Any, write: Callable[[Path], None]) -> Path:
        """A file of this name if the key is still the same; else it is written, and kept."""
        path, of_key = self.folder / name, self.folder / f"{name}.key.json"
        if not path.is_file() or _read_json(of_key) != {"key": key}:
            of_key.unlink(missing_ok=True)  # first: the old key is not that of the new file
            write(path)
            write_json(of_key, {"key": key})
        return path

    def as_json(self, measured: Measured, name: str) -> Path:
        """A file as the command's --json writes it."""
        path = self.folder / f"{name}.json"
        write_json(path, measured.json())
        return path


def key_of(options: dict[str, Any], inputs: Iterable[str | Path]) -> list[Any]:
    """All that a measurement depends on: the version, the options, and the files, by size and time of change.

    Raises:
        UserError: one of the files is not there.
    """
    files = [[str(Path(path).resolve()), *_status(Path(path))] for path in inputs]
    return [__version__, {name: options[name] for name in sorted(options)}, files]


def _status(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; expected a file to be measured") from error
    return status.st_size, status.st_mtime_ns


def _read(path: Path) -> dict[str, Any]:
    """A kept measurement; nothing where there is none, or where it was not written by this version."""
    found = _read_json(path)
    measured = found.get("measured")
    complete = isinstance(measured, dict) and set(measured) == set(Measured.__dataclass_fields__)
    return found if complete else {}


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):  # none yet, or damaged: it is made again
        return {}
    return found if isinstance(found, dict) else {}
