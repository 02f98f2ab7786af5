"""Reads texts, and writes files atomically."""

import json
import math
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .errors import UserError, first_line


@contextmanager
def reading(path: str | Path, expected: str, *kinds: type[Exception]) -> Iterator[None]:
    """Raises UserError in the place of exceptions of some kinds; `expected` says what the file
    should be."""
    try:
        yield
    except kinds as error:
        raise UserError(f"{path}: unreadable ({first_line(error)}); expected {expected}") from error


def read_lines(path: str | Path, expected: str, *, errors: str = "strict") -> Iterator[str]:
    """The lines of a text in UTF-8, with their ends; only a line feed ends one, unlike U+2028.

    `errors="replace"` reads bytes that are not UTF-8 as U+FFFD.
    """
    with reading(path, expected, OSError, UnicodeDecodeError):  # sig: without a byte-order mark
        with open(path, encoding="utf-8-sig", errors=errors, newline="\n") as file:
            yield from file


def read_json_object(path: str | Path, expected: str) -> dict[str, Any]:
    """Reads a file that holds a JSON object."""
    with reading(path, expected, OSError, ValueError, RecursionError):
        value = json.loads(Path(path).read_text(encoding="utf-8"))
    if not isinstance(value, dict):
        raise UserError(f"{path}: found a JSON {type(value).__name__}; expected {expected}")
    return value


def atomic_write(path: str | Path, write: Callable[[Path], object]) -> None:
    """Lets `write` fill a temporary file beside `path`, of the same suffix, and renames it; the old
    file stays until then, and a link to it ever after."""
    target = Path(path).resolve()
    temporary = target.with_name(f".{os.getpid()}.{target.name}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write(temporary)
        os.replace(temporary, target)
    except OSError as error:
        raise UserError(f"cannot write {target}: {error.strerror or error}") from error
    finally:
        if temporary.exists():
            temporary.unlink()


def check_writable(path: str | Path, *inputs: str | Path, replace: bool = True) -> None:
    """Raises UserError, before hours of work, if `atomic_write` could not write the file,
    or if it is one of the inputs, or exists without `replace`."""
    target = Path(path).resolve()
    if target in [Path(name).resolve() for name in inputs]:
        raise UserError(
            f"{path}: found an input, which would be written over; name another file to write"
        )
    if target.is_file() and not replace:
        raise UserError(f"{path}: found a file; add --force to replace it")
    if target.is_dir():
        raise UserError(f"cannot write {target}: it is a folder")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=target.parent).close()
    except OSError as error:
        raise UserError(f"cannot write {target}: {error.strerror}") from error


def write_json(path: str | Path, value: Any) -> None:
    """Writes a value as indented JSON, atomically; a number that is not finite becomes null."""
    text = json.dumps(_finite(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    atomic_write(path, lambda temporary: temporary.write_text(text, "utf-8", "backslashreplace"))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
