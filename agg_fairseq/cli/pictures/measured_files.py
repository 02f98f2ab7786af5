"""Reading what another command wrote by --json."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ...errors import UserError, first_line
from ...files import open_file
from ..naming import HUMAN

T = TypeVar("T")


@dataclass(frozen=True)
class MeasuredFile:
    """The numbers in a file of `agg-fairseq COMMAND … --json FILE`.

    Args:
        path: of the file.
        command: that should have written it.
        values: what it holds.
    """

    path: str
    command: str
    values: dict[str, Any]

    def rows(self, key: str) -> list[dict[str, Any]]:
        """One object for each thing that was measured, each with a `name`.

        Raises:
            UserError: there is no such list.
        """
        rows = self.values.get(key)
        if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
            raise UserError(f"{self.path}: found no {key!r} in it; {self._expected()}")
        for row in rows:
            if not isinstance(row.get("name"), str):
                raise UserError(f"{self.path}: found no name in one of its {key!r}; {self._expected()}")
        return rows

    def number(self, row: dict[str, Any], *keys: str) -> float:
        """The number at the end of some keys; NaN for null, a measure that is not defined.

        Raises:
            UserError: a key is missing, or what is there is no number.
        """
        value: Any = row
        for key in keys:
            if not isinstance(value, dict) or key not in value:
                raise UserError(f"{self.path}: found no {' '.join(keys)} of {row['name']!r}; {self._expected()}")
            value = value[key]
        if value is None:
            return math.nan
        if not isinstance(value, float | int) or isinstance(value, bool):
            found = f"a {type(value).__name__} as {' '.join(keys)} of {row['name']!r}"
            raise UserError(f"{self.path}: found {found}; expected a number; {self._expected()}")
        try:
            return float(value)
        except OverflowError:  # a whole number of hundreds of digits
            found = f"a number that is too large as {' '.join(keys)} of {row['name']!r}"
            raise UserError(f"{self.path}: found {found}; {self._expected()}") from None

    def human(self) -> dict[str, Any]:
        """What a file of text-metrics has of the human texts, as a row."""
        found = self.values.get(HUMAN)
        return {**(found if isinstance(found, dict) else {}), "name": HUMAN}

    def _expected(self) -> str:
        return f"expected a file of agg-fairseq {self.command} --json"


def human_of(files: Sequence[MeasuredFile], read: Callable[[MeasuredFile, dict[str, Any]], T]) -> T:
    """What `read` makes of the human texts, the same in all files.

    Raises:
        UserError: it is not the same; or as `read`.
    """
    found = [read(measured, measured.human()) for measured in files]
    for measured, other in zip(files, found, strict=True):
        if other != found[0]:
            raise UserError(
                f"{measured.path}: found another human text than in {files[0].path}; expected texts of the same split"
            )
    return found[0]


def read_measured(path: str | Path, command: str) -> MeasuredFile:
    """A file of `agg-fairseq COMMAND … --json FILE`.

    Raises:
        UserError: there is no such file, or it is no JSON object.
    """
    expected = f"expected a file of agg-fairseq {command} --json"
    try:
        with open_file(path, encoding="utf-8") as file:
            values = json.load(file)
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: unreadable ({first_line(error)}); {expected}") from error
    if not isinstance(values, dict):
        raise UserError(f"{path}: found a JSON {type(values).__name__}; {expected}")
    return MeasuredFile(str(path), command, values)
