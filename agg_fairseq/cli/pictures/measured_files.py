"""Reading what another command wrote by --json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ...errors import UserError, first_line


def read_measured(path: str | Path, command: str, key: str) -> dict[str, Any]:
    """The numbers in a file of `agg-fairseq COMMAND … --json FILE`.

    Args:
        path: the file.
        command: that should have written it.
        key: an entry that its files have: a list of objects, one for each thing that was measured.

    Raises:
        UserError: there is no such file, or it is not from that command.
    """
    expected = f"expected a file of agg-fairseq {command} --json"
    try:
        value = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: unreadable ({first_line(error)}); {expected}") from error
    rows = value.get(key) if isinstance(value, dict) else None
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise UserError(f"{path}: found no {key!r} in it; {expected}")
    return value
