"""What an evaluation returns: values by row and column, with the signature of all settings that affect them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from . import __version__
from .measures import Column, column, measure_of

Row = str | tuple[str, ...]  # the name of a row, or several names
UNDEFINED = "—"  # what a table shows for None


@dataclass(frozen=True)
class SeedValues:
    """The values of one cell for several seeds.

    Args:
        of_seed: by seed; None or a text, such as "not run", where there is no number.
    """

    of_seed: Mapping[Hashable, float | int | str | None]

    @property
    def numbers(self) -> dict[Hashable, float | int]:
        """The values that are numbers, by seed."""
        return {
            seed: value
            for seed, value in self.of_seed.items()
            if isinstance(value, float | int) and not math.isnan(value)
        }

    @property
    def mean(self) -> float | int:
        """Of the numbers, of which there has to be one; a single one as it is, so that a count stays a whole number."""
        numbers = list(self.numbers.values())
        return numbers[0] if len(set(numbers)) == 1 else statistics.fmean(numbers)

    @property
    def deviation(self) -> float | None:
        """Standard deviation of the numbers, with n − 1 in its denominator; None for fewer than two, or an infinity."""
        numbers = self.numbers.values()
        return statistics.stdev(numbers) if len(numbers) > 1 and all(map(math.isfinite, numbers)) else None

    def change(self, base: SeedValues, *, relative: bool = False) -> SeedValues:
        """The differences to other values, each of the same seed, for the seeds that both have.

        The noise that a seed brings to both (its order of the data, its initial values) cancels, so that the deviation
        of these differences, and not that of the values, says whether a mean difference is more than chance.

        Args:
            base: what is subtracted.
            relative: in percent of the base, and not of a base of 0.
        """
        pairs = {seed: (value, base.numbers[seed]) for seed, value in self.numbers.items() if seed in base.numbers}
        if relative:
            return SeedValues({seed: 100 * (value / other - 1) for seed, (value, other) in pairs.items() if other})
        return SeedValues({seed: value - other for seed, (value, other) in pairs.items()})

    def format(self, digits: int, *, sign: str = "", unit: str = "") -> str:
        """Mean ± standard deviation, and the number of seeds if only some have a number; without numbers, the texts.

        Args:
            digits: decimals; whole numbers of a single value have none.
            sign: "+" shows the sign of positive means too.
            unit: follows the mean.
        """
        if not self.numbers:
            return " / ".join(dict.fromkeys(UNDEFINED if one is None else str(one) for one in self.of_seed.values()))
        mean, deviation = self.mean, self.deviation
        text = f"{mean:{sign},}{unit}" if isinstance(mean, int) else f"{mean:{sign},.{digits}f}{unit}"
        if deviation or (deviation is not None and sign):  # a value that is the same for all seeds has none
            text = f"{text} ± {deviation:,.{digits}f}"
        return text if len(self.numbers) == len(self.of_seed) else f"{text} (n = {len(self.numbers)})"


Value = float | int | str | None | SeedValues
"""A number or a text; None where a measure is not defined; in an aggregate, the values of all seeds."""


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
        >>> result = Result.of({"mle": {"PPL total": 169.04}}, "split:test")
        >>> result["mle"]["PPL total"]
        169.04
        >>> print(result.table())
        |     | PPL total |
        |-----|----------:|
        | mle |    169.04 |
        >>> seeds = Result.aggregate({1: result, 2: Result.of({"mle": {"PPL total": 171.0}}, "split:test")})
        >>> seeds["mle"]["PPL total"].format(digits=1)
        '170.0 ± 1.4'
    """

    columns: Sequence[Column]
    rows: Mapping[Row, Sequence[Value]]
    signature: str
    details: Mapping[str, Any] = field(default_factory=dict)
    labels: tuple[str, ...] = ("",)

    @classmethod
    def of(
        cls,
        rows: Mapping[Row, Mapping[str, Value]],
        signature: str,
        details: Mapping[str, Any] | None = None,
        *,
        units: Mapping[str, str] | None = None,
        labels: tuple[str, ...] = ("",),
    ) -> Result:
        """A result whose columns are the titles in its rows, as `agg_fairseq.measures` declares them.

        Args:
            rows: the values of each row by the titles of their columns; a row may lack some.
            units: of the titles that are no measure's, such as those of data sets.
        """
        titles = dict.fromkeys(title for values in rows.values() for title in values)
        columns = [column(title, (units or {}).get(title, "")) for title in titles]
        return cls(
            columns,
            {row: [values.get(title) for title in titles] for row, values in rows.items()},
            signature,
            details or {},
            labels,
        )

    @classmethod
    def aggregate(cls, by_seed: Mapping[Hashable, Result]) -> Result:
        """The results of several seeds in one, with mean ± standard deviation in its table.

        Args:
            by_seed: results with the same columns. A row that some of them lack has the numbers of the others, and
                their number of seeds.

        Returns:
            Result: the rows of all; each value that is a number is a `SeedValues`, whose `change` to that of another
            row is paired by seed. What is the same for all seeds and no number stays as it is. Signature: the distinct
            ones in a line each. Details: those of each result, by seed.

        Raises:
            ValueError: the columns differ.
        """
        first = next(iter(by_seed.values()))
        titles = [[column.title for column in result.columns] for result in by_seed.values()]
        if any(one != titles[0] for one in titles):
            raise ValueError(f"expected results with the same columns, got {titles}")
        rows: dict[Row, list[Value]] = {}
        for name in dict.fromkeys(row for result in by_seed.values() for row in result.rows):
            rows[name] = []
            for position in range(len(first.columns)):
                values = {
                    seed: result.rows[name][position] if name in result.rows else None
                    for seed, result in by_seed.items()
                }
                cell, texts = SeedValues(values), {value for value in values.values() if value is not None}
                rows[name].append(cell if cell.numbers or len(texts) > 1 else next(iter(texts), None))
        signatures = dict.fromkeys(result.signature for result in by_seed.values())
        details = {str(seed): result.details for seed, result in by_seed.items()}
        return cls(first.columns, rows, "\n".join(signatures), details, first.labels)

    def __getitem__(self, row: Row) -> dict[str, Any]:
        """The values of a row by the titles of their columns."""
        return dict(zip((column.title for column in self.columns), self.rows[row], strict=True))

    def select(self, titles: Sequence[str]) -> Result:
        """The same result with only the columns of these titles, in their order; those that it lacks are left out."""
        numbers = {column.title: number for number, column in enumerate(self.columns)}
        kept = [numbers[title] for title in titles if title in numbers]
        rows = {row: [values[number] for number in kept] for row, values in self.rows.items()}
        return replace(self, columns=[self.columns[number] for number in kept], rows=rows)

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
        """All of it, as plain values that `from_dict` takes back; not of an aggregate."""
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
        except (LookupError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"expected what Result.to_dict returns ({error})") from error
        return result


def signature(*parts: str | None) -> str:
    """Settings in the form `name:value|name:value|…`, with the version of the package; None is left out."""
    return "|".join([*(part for part in parts if part is not None), f"version:{__version__}"])


def format_value(value: Value, digits: int) -> str | None:
    """A number with thousands separators, a float with a fixed number of decimals; a text and None as they are."""
    if isinstance(value, SeedValues):
        return value.format(digits)
    if value is None or isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else f"{value:,.{digits}f}"


def format_change(change: SeedValues, column: Column) -> str | None:
    """A change as a table shows it, with its sign, and in percent where `agg_fairseq.measures` says so; None without
    numbers."""
    if not change.numbers:
        return None
    return change.format(1, sign="+", unit="%") if is_relative(column) else change.format(column.digits, sign="+")


def is_relative(column: Column) -> bool:
    """Whether changes of a column are given in percent."""
    measure = measure_of(column)
    return measure is not None and measure.relative


def format_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table in Markdown, the first column aligned to the left and the others to the right; None becomes a dash."""
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
