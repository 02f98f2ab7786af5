"""The numbers that pictures are drawn from: those of a `Result`, or of a file that a command wrote by --json."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from ..errors import UserError
from ..names import HUMAN
from ..result import Result

T = TypeVar("T")
Row = Mapping[str, Any]
"""What was measured of one model, with its `name`."""
Evaluations = Mapping[str, Result | Mapping[str, Any]]
"""Results of an evaluation, or the contents of its JSON files, by the names or paths that errors mention."""


def number(value: float | None) -> float:
    """A number; NaN for a measure that is not defined."""
    if not isinstance(value, float | int | None):
        raise TypeError(f"a {type(value).__name__} instead of a number")
    return math.nan if value is None else value


@contextlib.contextmanager
def reading(evaluations: Evaluations, command: str) -> Iterator[None]:
    """Raises a UserError where the evaluations are not what a command writes."""
    try:
        yield
    except (LookupError, TypeError, AttributeError) as error:
        found = str(error) if isinstance(error, TypeError) else f"no {error}"
        raise UserError(f"{', '.join(evaluations)}: found {found}; expected what {command} --json writes") from error


def rows_of(evaluations: Evaluations, key: str) -> list[Row]:
    """The models of all evaluations, those in the list `key` of the details, each once."""
    found: list[Row] = []
    for details in _details(evaluations):
        found += [row for row in details[key] if row not in found]
    return found


def texts_of(evaluations: Evaluations, read: Callable[[Row], T]) -> tuple[dict[str, T], T]:
    """What `read` reads in evaluations of `text_metrics`: of each model, by its name, and of the human texts.

    Raises:
        UserError: a name occurs twice; or the human texts are not the same, so that nothing can be compared.
    """
    models: dict[str, T] = {}
    with reading(evaluations, "text-metrics"):
        for row in rows_of(evaluations, "files"):
            if row["name"] in models:
                raise again(evaluations, row["name"], "text-metrics")
            models[row["name"]] = read(row)
        human = [read(details[HUMAN]) for details in _details(evaluations)]
    if len({repr(one) for one in human}) > 1:  # NaN is NaN
        raise UserError(f"{', '.join(evaluations)}: found different human texts; expected texts of the same split")
    return models, human[0]


def again(evaluations: Evaluations, name: str, command: str) -> UserError:
    """The error about a name that is taken."""
    return UserError(
        f"{', '.join(evaluations)}: found the name {name!r} again; expected a name for each model; see --name of "
        f"{command}"
    )


def _details(evaluations: Evaluations) -> list[Mapping[str, Any]]:
    return [one.details if isinstance(one, Result) else one for one in evaluations.values()]
