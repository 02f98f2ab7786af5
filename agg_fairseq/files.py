"""Writing files whole: beside the target, then renamed onto it."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .errors import UserError


def write_whole(path: str | Path, write: Callable[[Path], object]) -> None:
    """Lets `write` fill a temporary file beside `path` and renames it; the old file stays until then.

    Raises:
        UserError: the folder cannot be written to.
    """
    target = Path(path)
    temporary = target.with_name(f".{os.getpid()}.{target.name}")  # keeps the suffix, which tells the format
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write(temporary)
        os.replace(temporary, target)
    except OSError as error:
        remedy = "name a file in a folder you can write to"
        raise UserError(f"cannot write {target}: {error.strerror or error}; {remedy}") from error
    finally:
        if temporary.exists():
            temporary.unlink()


def write_json(path: str | Path, value: Any) -> None:
    """Writes a value as indented JSON, whole or not at all; a number that is not finite becomes null."""
    text = json.dumps(_finite(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    write_whole(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def _finite(value: Any) -> Any:
    """The value as JSON can say it."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
