"""The numbers that pictures are drawn from: those of a `Result`, or of a file that a command wrote by --json."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from ..errors import UserError
from ..names import HUMAN
from ..result import Result

T = TypeVar("T")
Evaluations = Mapping[str, Result | Mapping[str, Any]]
"""Results of an evaluation, or the contents of its JSON files, by the names or paths that errors mention."""


@dataclass(frozen=True)
class Row:
    """What was measured of one model, of one evaluation.

    Args:
        source: a name or path of the evaluation, for errors.
        values: of the model, with its `name`.
    """

    source: str
    values: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The name of the model."""
        return self.values["name"]

    def number(self, *keys: str | int) -> float:
        """Returns `values[keys[0]][keys[1]]…`; NaN where it, or what holds it, is None: a measure that is not defined.

        Raises:
            UserError: one of the keys is missing, or the value is not a number.
        """
        value: Any = self.values
        for key in keys:
            try:
                value = None if value is None else value[key]
            except (LookupError, TypeError):
                raise self._error(keys, "nothing") from None
        if value is None:
            return math.nan
        if not isinstance(value, float | int) or isinstance(value, bool):
            raise self._error(keys, f"a {type(value).__name__}")
        return value

    def _error(self, keys: tuple[str | int, ...], found: str) -> UserError:
        what = " ".join(map(str, keys))
        return UserError(f"{self.source}: found {found} as {what} of {self.name!r}; expected a number")


def rows_of(evaluations: Evaluations, key: str) -> list[Row]:
    """The models of all evaluations, those in the list `key` of the details, each once.

    Raises:
        UserError: an evaluation has no such list.
    """
    found: list[Row] = []
    for source, details in _details(evaluations):
        rows = details.get(key)
        listed = [one for one in rows if isinstance(one, Mapping)] if isinstance(rows, list) else []
        if not listed or not all(isinstance(one.get("name"), str) for one in listed):
            raise UserError(f"{source}: found no {key!r} with names in it; expected what --json of the command writes")
        found += [Row(source, one) for one in listed if one not in [other.values for other in found]]
    return found


def human_of(evaluations: Evaluations, read: Callable[[Row], T]) -> T:
    """What `read` reads of the human texts, which are the same in all evaluations of `text_metrics`.

    Raises:
        UserError: they are not the same, so that the evaluations cannot be compared; or as `read`.
    """
    rows = [Row(source, {**(details.get(HUMAN) or {}), "name": HUMAN}) for source, details in _details(evaluations)]
    found = [read(row) for row in rows]
    for row, other in zip(rows, found, strict=True):
        if repr(other) != repr(found[0]):  # NaN is NaN
            raise UserError(
                f"{row.source}: found another human text than in {rows[0].source}; expected texts of the same split"
            )
    return found[0]


def again(row: Row, command: str) -> UserError:
    """The error about a name that is taken."""
    return UserError(
        f"{row.source}: found the name {row.name!r} again; expected a name for each model; see --name of {command}"
    )


def _details(evaluations: Evaluations) -> list[tuple[str, Mapping[str, Any]]]:
    return [(source, one.details if isinstance(one, Result) else one) for source, one in evaluations.items()]
