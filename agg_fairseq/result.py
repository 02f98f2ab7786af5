"""The result of an evaluation: values by row, metric and group, with all settings; tables;
comparison over seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from . import __version__
from .columns import METRICS, Columns, Metric, column_titles
from .errors import UserError, first_line, printable
from .files import read_json_object

Row = str | tuple[str, ...]  # the name of a row, or several names
UNDEFINED = "—"  # what a table shows for None
BETTER, WORSE, SAME = "better", "worse", "same"
VERDICT_RULE = (
    "Only differences above two standard errors over seeds, paired where both models have the same "
    "ones, are marked. With one seed of each model, none is tested."
)


@dataclass(frozen=True)
class SeedValues:
    """The values of one cell for several seeds: numbers, texts, such as "not run", or None."""

    by_seed: Mapping[Hashable, float | int | str | None]

    @property
    def numbers(self) -> dict[Hashable, float | int]:
        """The values that are numbers, by seed."""
        found = {}
        for seed, value in self.by_seed.items():
            if isinstance(value, float | int):
                found[seed] = value
        return found

    @property
    def mean(self) -> float | int:
        """Mean of the numbers (at least one)."""
        numbers = list(self.numbers.values())
        return numbers[0] if len(set(numbers)) == 1 else statistics.fmean(numbers)

    @property
    def deviation(self) -> float | None:
        """Standard deviation over n − 1; None for fewer than two numbers."""
        numbers = self.numbers.values()
        return statistics.stdev(numbers) if len(numbers) > 1 else None

    def change(self, base: SeedValues, *, relative: bool = False) -> SeedValues:
        """The differences from a base, for the seeds that both have; `relative`: in percent of the
        base, where it is not 0."""
        changes: dict[Hashable, float | int] = {}
        others = base.numbers
        for seed, value in self.numbers.items():
            if seed in others and not relative:
                changes[seed] = value - others[seed]
            elif others.get(seed):
                changes[seed] = 100 * (value / others[seed] - 1)
        return SeedValues(changes)

    def format(self, digits: int, *, sign: str = "", unit: str = "") -> str:
        """Mean ± standard deviation, and the number of seeds if only some have a number; without
        numbers, the texts. `sign`: "+" for a sign before positive means too."""
        if not self.numbers:
            texts = [format_value(value, digits) for value in self.by_seed.values()]
            return " / ".join(dict.fromkeys(texts))
        mean, deviation = self.mean, self.deviation
        text = format_value(mean, digits, sign) + unit
        if deviation or (deviation is not None and sign):
            text += f" ± {deviation:,.{digits}f}"
        if len(self.numbers) < len(self.by_seed):
            text += f" (n = {len(self.numbers)})"
        return text


Value = float | int | str | None  # a number or a text; None where a metric is not defined


def format_value(value: Value, digits: int, sign: str = "") -> str:
    """A value as tables show it; `sign`: "+" for a sign before positive numbers too."""
    if isinstance(value, float):
        return f"{value:{sign},.{digits}f}"
    if isinstance(value, int):
        return f"{value:{sign},}"
    return UNDEFINED if value is None else str(value)


SCHEMA = 2
"""Version of `Result.json`, which docs/evaluation.md describes. Raise it if a name or a unit
changes."""


@dataclass(frozen=True)
class Result:
    """The result of an evaluation.

    Args:
        rows: by the name of what was measured, or by several names, one for each of `labels`. A row
            has the values of `METRICS` by their names, not rounded: one value, or a mapping of
            values by key, such as the frequency group; and others, such as its path.
        columns: what the table shows.
        settings: every setting that affects a number; True for one that is only named in the
            signature, None for one that does not apply.
        facts: what belongs to no row, such as the sizes of the frequency groups.
        labels: titles of the columns that name the rows.
        version: of the package that measured it.

    Examples:
        >>> rows = {"mle": {"perplexity": {"total": 169.04, "rare": 913.25}, "path": "runs/mle"}}
        >>> result = Result(rows, {"perplexity": ["rare", "total"]}, {"split": "test"}, version="1")
        >>> result.value("mle", "perplexity", "total")
        169.04
        >>> print(result.table())
        |     | PPL rare | PPL total |
        |-----|---------:|----------:|
        | mle |   913.25 |    169.04 |
        >>> result.signature
        'split:test|version:1'
    """

    rows: Mapping[Row, Mapping[str, Any]]
    columns: Columns
    settings: Mapping[str, str | float | None]
    facts: Mapping[str, Any] = field(default_factory=dict)
    labels: Sequence[str] = ("",)
    version: str = __version__

    def __post_init__(self) -> None:
        """Raises UserError for a measure that is infinite or NaN."""
        for name, row in self.rows.items():
            for metric in METRICS.keys() & row.keys():
                values = row[metric] if isinstance(row[metric], Mapping) else {"": row[metric]}
                for key, value in values.items():
                    if isinstance(value, float) and not math.isfinite(value):
                        raise UserError(
                            f"{name}: found {value} as {METRICS[metric].title.format(key)}; "
                            "expected a finite number: a diverged model, or one whose logits overflow"
                        )

    def __getitem__(self, row: Row) -> Mapping[str, Any]:
        return self.rows[row]

    def value(self, row: Row, metric: str, key: str = "") -> Value:
        """A value of a row; None where it is not defined, or the row lacks it."""
        value = self.rows[row].get(metric)
        return (value or {}).get(key) if key else value

    def shown(self, row: Row, metric: str, key: str = "") -> Value:
        """A value in the unit of tables, such as percent."""
        value = self.value(row, metric, key)
        return value if value is None or isinstance(value, str) else value * METRICS[metric].scale

    def cell(self, row: Row, metric: str, key: str = "") -> str:
        """A value as tables show it."""
        return format_value(self.shown(row, metric, key), METRICS[metric].digits)

    @property
    def signature(self) -> str:
        """All settings and the version, `name:value|name:value|…`."""
        parts = []
        for name, value in self.settings.items():
            if value is not None:
                parts.append(name if value is True else f"{name}:{value}")
        return "|".join([*parts, f"version:{self.version}"])

    def table(self, columns: Columns | None = None, *, transposed: bool = False) -> str:
        """A table in Markdown of all columns, or of some, without rows that have no value in these;
        `transposed`: with a line for each column."""
        titles = column_titles(self.columns)
        pairs = [pair for pair in column_titles(columns or self.columns) if pair in titles]
        table = [[*self.labels, *(titles[pair] for pair in pairs)]]
        for row in self.rows:
            cells = [self.cell(row, *pair) for pair in pairs]
            if columns is None or set(cells) != {UNDEFINED}:
                table.append([*([row] if isinstance(row, str) else row), *cells])
        header, *lines = zip(*table, strict=True) if transposed else table
        return format_table(header, lines)

    def json(self) -> dict[str, Any]:
        """All of it as plain values, as commands write it to --json."""
        return {
            "signature": self.signature,
            "schema": SCHEMA,
            "version": self.version,
            "settings": dict(self.settings),
            "facts": dict(self.facts),
            "labels": list(self.labels),
            "columns": {metric: list(keys) for metric, keys in self.columns.items()},
            "rows": [{"name": row, **values} for row, values in self.rows.items()],
        }

    @classmethod
    def read(cls, path: str | Path) -> Result:
        """The result that a command wrote to --json; UserError for a file of anything else."""
        expected = "what a command of agg-fairseq wrote to --json"
        values, rows = read_json_object(path, expected), {}
        if values.get("schema") != SCHEMA:
            found = values.get("schema")
            raise UserError(f"{path}: found the schema {found}; expected {SCHEMA}: {expected}")
        try:
            for row in values["rows"]:
                name = row["name"] if isinstance(row["name"], str) else tuple(row["name"])
                rows[name] = {key: value for key, value in row.items() if key != "name"}
            parts = [values[part] for part in ("columns", "settings", "facts", "labels", "version")]
            result = cls(rows, *parts)
            result.table(), result.signature  # so cells and settings are all looked at
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise UserError(f"{path}: {first_line(error)}; expected {expected}") from error
        return result


def format_change(change: SeedValues, metric: Metric) -> str | None:
    """A change as tables show it, in percent if the metric is relative; None without numbers."""
    if not change.numbers:
        return None
    if metric.relative:
        return change.format(1, sign="+", unit="%")
    return change.format(metric.digits, sign="+")


class Compared(NamedTuple):
    """A model's value of a metric beside the baseline's."""

    text: str  # mean and deviation, as tables show them
    change: str = ""  # from the baseline
    # `BETTER`, `WORSE` or `SAME`; empty of one seed, or if no direction is better
    verdict: str = ""


def compare(
    metric: Metric, value: SeedValues, base: SeedValues | None, human: Value = None
) -> Compared:
    """Compares a model with the baseline by `VERDICT_RULE`, in the unit of tables: the distances from the
    ideal, where a metric has one.

    Args:
        value: of all seeds of the model.
        base: of all seeds of the baseline; None for the baseline itself.
        human: the value of the human texts, for metrics that should be near to it.
    """
    text = value.format(metric.digits)
    if base is None or not base.numbers or not value.numbers:
        return Compared(text)
    paired = len(value.numbers.keys() & base.numbers.keys()) > 1
    after, before = value, base
    if not paired:
        after, before = SeedValues({"": value.mean}), SeedValues({"": base.mean})
    change = format_change(after.change(before, relative=metric.relative), metric) or ""
    distance = metric.distance(human if isinstance(human, float | int) else None)
    deviations = [seeds.deviation for seeds in (value, base) if seeds.deviation is not None]
    if distance is None or not deviations:
        return Compared(text, change)
    by_seed = {}
    for seed, number in after.numbers.items():
        if seed in before.numbers:
            by_seed[seed] = distance(before.numbers[seed]) - distance(number)
    gains = SeedValues(by_seed)
    if paired:  # two standard errors of the mean gain
        least = 2 * (gains.deviation or 0.0) / math.sqrt(len(gains.numbers))
    else:  # of two independent means; the larger one stands for that of a single seed
        least = 2 * max(deviations) * math.sqrt(1 / len(value.numbers) + 1 / len(base.numbers))
    if abs(gains.mean) <= least:
        return Compared(text, change, SAME)
    return Compared(text, change, BETTER if gains.mean > 0 else WORSE)


def format_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table in Markdown, the first column aligned to the left and the others to the right; None
    becomes a dash."""
    columns: list[list[str]] = []
    for column in zip(header, *rows, strict=True):
        texts = []
        for cell in column:
            text = UNDEFINED if cell is None else str(cell)
            # a line end or a bar would end the row or the cell
            texts.append(printable(text).replace("|", "\\|") or text)
        width = max(map(len, texts))
        if columns:
            cells = [f" {text.rjust(width)} " for text in texts]
            cells.insert(1, "-" * (width + 1) + ":")
        else:
            cells = [f" {text.ljust(width)} " for text in texts]
            cells.insert(1, "-" * (width + 2))
        columns.append(cells)
    return "\n".join(f"|{'|'.join(line)}|" for line in zip(*columns, strict=True))
