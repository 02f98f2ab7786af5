"""What an evaluation returns: values by row and column, with the signature of all settings that affect them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

Value = float | int | str | None
"""A number or a text; None where a measure is not defined."""

UNDEFINED = "—"
"""What a table shows for None."""


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Args:
        title: as the table has it.
        unit: "nats", "tokens", "%", …; empty for a pure number or a text.
        digits: decimals that the table shows of a float; a count, which is an int, is shown whole.
    """

    title: str
    unit: str = ""
    digits: int = 2


@dataclass(frozen=True)
class Result:
    """The result of an evaluation.

    Args:
        columns: of the values.
        rows: by the name of what was measured, or by several names, one for each of `labels`; a value per column, not
            rounded, in the column's unit.
        signature: every setting that affects a number, as `name:value|name:value|…|version:…`.
        details: all that was measured, of which the table shows a part: what `json` returns beside the signature. Its
            units are those that the function documents; they need not be those of the columns.
        labels: titles of the columns that name the rows.

    Example:
        >>> result = Result([Column("PPL total", digits=1)], {"mle": [169.04]}, "split:test")
        >>> result["mle"]["PPL total"]
        169.04
        >>> print(result.table())
        |     | PPL total |
        |-----|----------:|
        | mle |     169.0 |
    """

    columns: Sequence[Column]
    rows: Mapping[str | tuple[str, ...], Sequence[Value]]
    signature: str
    details: Mapping[str, Any] = field(default_factory=dict)
    labels: tuple[str, ...] = ("",)

    def __getitem__(self, row: str | tuple[str, ...]) -> dict[str, Value]:
        """The values of a row by the titles of their columns.

        Raises:
            KeyError: there is no such row.
        """
        return dict(zip((column.title for column in self.columns), self.rows[row], strict=True))

    def table(self, *, transposed: bool = False) -> str:
        """The values as a table in Markdown, rounded; `transposed`: a line for each column."""
        lines = [[*self.labels, *(column.title for column in self.columns)]]
        lines += [[*names, *cells] for names, cells in self.formatted()]
        header, *rows = map(list, zip(*lines, strict=True)) if transposed else lines
        return format_table(header, rows)

    def formatted(self) -> list[tuple[tuple[str, ...], list[str | None]]]:
        """The names of each row, and its values as the table shows them."""
        return [
            (
                (row,) if isinstance(row, str) else row,
                [format_value(value, column.digits) for value, column in zip(values, self.columns, strict=True)],
            )
            for row, values in self.rows.items()
        ]

    def json(self) -> dict[str, Any]:
        """The signature and the details: what the commands write to --json."""
        return {"signature": self.signature, **self.details}

    def to_dict(self) -> dict[str, Any]:
        """All of it, as plain values that `from_dict` takes back."""
        rows = [[[row] if isinstance(row, str) else list(row), list(values)] for row, values in self.rows.items()]
        columns = [asdict(column) for column in self.columns]
        return {
            "columns": columns, "rows": rows, "signature": self.signature, "details": dict(self.details),
            "labels": list(self.labels),
        }  # fmt: skip

    @classmethod
    def from_dict(cls, values: Any) -> Result:
        """What `to_dict` returned.

        Raises:
            ValueError: it is something else.
        """
        try:
            columns = [Column(**column) for column in values["columns"]]
            rows = {names[0] if len(names) == 1 else tuple(names): list(cells) for names, cells in values["rows"]}
            result = cls(columns, rows, values["signature"], dict(values["details"]), tuple(values["labels"]))
            result.table()  # titles, digits and values are of the right kinds if it can be formatted
        except (LookupError, TypeError, AttributeError) as error:
            raise ValueError(f"expected what Result.to_dict returns ({error})") from error
        names = [name for row in rows for name in ((row,) if isinstance(row, str) else row)]
        texts = [result.signature, *result.labels, *names, *(text for one in columns for text in (one.title, one.unit))]
        values_known = all(isinstance(cell, Value) for cells in rows.values() for cell in cells)
        digits_known = all(type(column.digits) is int for column in columns)
        if not all(isinstance(text, str) for text in texts) or not values_known or not digits_known:
            raise ValueError("expected what Result.to_dict returns, with its texts and numbers")
        return result


def format_value(value: Value, digits: int) -> str | None:
    """A number with thousands separators, a float with a fixed number of decimals; a text and None as they are."""
    if value is None or isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else f"{value:,.{digits}f}"


def format_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table in Markdown, the first column aligned to the left and the others to the right.

    Args:
        header: titles of the columns.
        rows: cells as strings, since the caller knows how many digits matter; None becomes a dash.
    """
    cells = []
    for row in (header, *rows):
        texts = [UNDEFINED if cell is None else str(cell) for cell in row]
        # a line end or a bar would end the row or the cell
        cells.append([" ".join(text.split()).replace("|", "\\|") if text.strip() else text for text in texts])
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    lines = []
    for first, *others in cells:
        aligned = [first.ljust(widths[0]), *(text.rjust(width) for text, width in zip(others, widths[1:], strict=True))]
        lines.append(f"| {' | '.join(aligned)} |")
    rule = "|".join(["-" * (widths[0] + 2), *("-" * (width + 1) + ":" for width in widths[1:])])
    return "\n".join([lines[0], f"|{rule}|", *lines[1:]])
