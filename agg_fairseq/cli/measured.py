"""What a command measured: a table, the choices that moved its numbers, and the numbers themselves."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..files import check_writable, write_json
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


def measure_and_show(
    measure: Callable[[argparse.Namespace], Measured], arguments: argparse.Namespace, inputs: Sequence[str]
) -> None:
    """Measures, prints and writes, after a look whether `--json` can be written and is none of the files that are read.

    Args:
        measure: of the command.
        arguments: its options.
        inputs: the files and folders that it reads.

    Raises:
        UserError: `--json` cannot be written, or is read; or as `measure`.
    """
    if arguments.json:
        if any(_is_read(Path(arguments.json).resolve(), Path(path).resolve()) for path in inputs):
            raise UserError(f"--json: found {arguments.json}, a file that is read; name another")
        check_writable(arguments.json)
    show(measure(arguments), arguments.json)


def _is_read(target: Path, source: Path) -> bool:
    """Is a file to be written the one that is read, or one of the folder that is read?"""
    inside = source in target.parents and target.is_file() and target.suffix != ".json"
    return target == source or inside


def show(measured: Measured, json: str | None) -> None:
    """Prints the table and the signature, and writes the numbers to the file `json`, if one is named."""
    print(f"{format_table(measured.header, measured.rows)}\n\n{measured.signature}")
    if json:
        write_json(json, measured.json())
