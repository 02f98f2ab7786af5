"""The numbers that pictures are drawn from: those of a `Result`, or of a file that a command wrote by --json."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ..errors import UserError
from ..names import HUMAN
from ..result import Result

T = TypeVar("T")
Evaluations = Mapping[str, Result | Mapping[str, Any]]
"""Results of an evaluation, or the contents of its JSON files, by the names or paths that errors mention."""


@dataclass(frozen=True)
class Measurements:
    """The numbers of one evaluation. They may come from a file that anyone can edit, so that each is checked when read.

    Args:
        source: a name or path, for errors.
        command: of `agg-fairseq`, whose numbers these should be.
        details: as of `Result.details`.
    """

    source: str
    command: str
    details: Mapping[str, Any]

    def rows(self, key: str) -> list[Mapping[str, Any]]:
        """Returns the list `details[key]`: an object with a `name` for each thing that was measured.

        Raises:
            UserError: there is no such list.
        """
        rows = self.details.get(key)
        if not isinstance(rows, list) or not rows or not all(isinstance(row, Mapping) for row in rows):
            raise self.error(f"found no {key!r} in it")
        if not all(isinstance(row.get("name"), str) for row in rows):
            raise self.error(f"found no name in one of its {key!r}")
        return rows

    def human(self) -> dict[str, Any]:
        """Returns what `text-metrics` measured of the human texts, as a row like those of `rows`."""
        found = self.details.get(HUMAN)
        return {**(found if isinstance(found, Mapping) else {}), "name": HUMAN}

    def number(self, row: Mapping[str, Any], *keys: str) -> float:
        """Returns `row[keys[0]][keys[1]]…`; NaN where it is None, a measure that is not defined.

        Raises:
            UserError: one of the keys is missing, or the value is not a number.
        """
        what, value = f"{' '.join(keys)} of {row['name']!r}", row
        for key in keys:
            if not isinstance(value, Mapping) or key not in value:
                raise self.error(f"found no {what}")
            value = value[key]
        if value is None:
            return math.nan
        if not isinstance(value, float | int) or isinstance(value, bool):
            raise self.error(f"found a {type(value).__name__} as {what}; expected a number")
        try:
            return float(value)
        except OverflowError:  # a whole number of hundreds of digits
            raise self.error(f"found a number that is too large as {what}") from None

    def error(self, found: str) -> UserError:
        """An error about these numbers, to be raised: where it is, what was found, and what was expected."""
        return UserError(f"{self.source}: {found}; expected a file of agg-fairseq {self.command} --json")


def measurements_of(evaluations: Evaluations, command: str) -> list[Measurements]:
    """The numbers of each evaluation, to be read by a picture."""
    return [
        Measurements(source, command, found.details if isinstance(found, Result) else found)
        for source, found in evaluations.items()
    ]


def human_measurements(evaluations: Sequence[Measurements], read: Callable[[Measurements, Mapping[str, Any]], T]) -> T:
    """Returns what `read` reads of the human texts, which are the same in all evaluations.

    Raises:
        UserError: they are not the same, so that the evaluations cannot be compared; or as `read`.
    """
    found = [read(evaluation, evaluation.human()) for evaluation in evaluations]
    for evaluation, other in zip(evaluations, found, strict=True):
        if other != found[0]:
            raise UserError(
                f"{evaluation.source}: found another human text than in {evaluations[0].source}; expected texts of the "
                "same split"
            )
    return found[0]
