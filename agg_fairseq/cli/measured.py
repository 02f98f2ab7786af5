"""The results of the commands in the form that the report takes, until it calls the functions themselves."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..evaluation.result import Result


@dataclass(frozen=True)
class Measured:
    """A table: the header, the rows with formatted numbers, the signature, and all numbers."""

    header: Sequence[str]
    rows: Sequence[Sequence[str | None]]
    signature: str
    values: dict[str, Any]

    def json(self) -> dict[str, Any]:
        """The signature and the numbers."""
        return {"signature": self.signature, **self.values}


def measured_by(evaluate: Callable[[argparse.Namespace], Result]) -> Callable[[argparse.Namespace], Measured]:
    """As the report calls a command."""

    def measure(arguments: argparse.Namespace) -> Measured:
        result = evaluate(arguments)
        header = [*result.labels, *(column.title for column in result.columns)]
        rows = [[*names, *cells] for names, cells in result.formatted()]
        return Measured(header, rows, result.signature, dict(result.details))

    return measure
