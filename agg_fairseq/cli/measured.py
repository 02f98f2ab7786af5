"""What a command measured: a table, the choices that moved its numbers, and the numbers themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..files import write_json
from .table import format_table


@dataclass(frozen=True)
class Measured:
    """The result of a measuring command, to be printed, written as JSON or put into a report.

    Args:
        header: of the columns; the first, the names of the rows, is empty.
        rows: the name of what was measured, then a formatted number per column; None where it is not defined.
        signature: every choice that moves a number, as `name:value|name:value|…|version:…`.
        values: all numbers, unrounded, as JSON can say them.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str | None]]
    signature: str
    values: dict[str, Any]

    def json(self) -> dict[str, Any]:
        """The signature and the numbers."""
        return {"signature": self.signature, **self.values}


def show(measured: Measured, json: str | None) -> None:
    """Prints the table and the signature, and writes the numbers to the file `json`, if one is named."""
    print(f"{format_table(measured.header, measured.rows)}\n\n{measured.signature}")
    if json:
        write_json(json, measured.json())
