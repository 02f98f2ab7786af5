"""Comparison of the models of a report with one of them, the baseline: runs of several seeds count as one model."""

from __future__ import annotations

import math
import os.path
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..errors import UserError
from ..names import HUMAN
from ..result import Column, Result, format_value
from .glossary import HIGHER, LIKE_HUMAN, LOWER, ONE, ZERO, Measure, measure_of
from .page import Cell, Table, Term, Verdict
from .runs import Run, settings_of

NEARLY = 0.01
"""A difference of less than this share of the baseline's value is not clear, if there is one seed of each model."""
SEED = "--seed"
"""The option in which the runs of one model differ."""
BETTER, WORSE, SAME = "better", "worse", "same"
RULE = (
    f"A difference is clear if it is larger than {NEARLY:.0%} of the baseline's value (one seed of each model), or "
    "than two standard errors (several seeds). In the tables, ▲ is better than the baseline, ▽ is worse, and the best "
    "value is bold."
)
"""What the words and marks of a comparison mean."""
SENTENCE = {
    "PPL total": {
        BETTER: "predicts tokens better", WORSE: "predicts tokens worse", SAME: "predicts tokens about as well",
    },
    "PPL rare": {BETTER: "rare tokens better", WORSE: "rare tokens worse", SAME: "rare tokens about as well"},
    "BLEU": {BETTER: "translates better", WORSE: "translates worse", SAME: "translates about as well"},
    **dict.fromkeys(
        ("IsoScore", "IsoScore total"),
        {BETTER: "uses more dimensions", WORSE: "uses fewer dimensions", SAME: "uses about as many dimensions"},
    ),
}  # fmt: skip
"""What the verdict says of a model, by the title of a column."""


@dataclass(frozen=True)
class Model:
    """A model: one run, or several that differ by their seed alone.

    Args:
        name: of the run, or what the names of the runs have in common.
        runs: names of the runs.
    """

    name: str
    runs: tuple[str, ...]


@dataclass(frozen=True)
class Compared:
    """What a table shows of a model.

    Args:
        mean: over the seeds.
        deviation: standard deviation over the seeds; None for one seed.
        seeds: number of runs.
        difference: to the baseline, relative or absolute as the measure has it; None for the baseline itself.
        verdict: `BETTER`, `WORSE` or `SAME`; empty if no direction is better, or for the baseline.
        is_best: among all models.
    """

    mean: float
    deviation: float | None
    seeds: int
    difference: float | None = None
    verdict: str = ""
    is_best: bool = False


@dataclass(frozen=True)
class Comparison:
    """The models of a report.

    Args:
        models: in the order of their first runs.
        baseline: one of them.
    """

    models: Sequence[Model]
    baseline: Model

    @classmethod
    def of_runs(cls, runs: Sequence[Run], baseline: str | None = None) -> Comparison:
        """Groups runs whose settings differ by the seed alone.

        Args:
            runs: of the report.
            baseline: name of a run or a model; None: the first.

        Raises:
            UserError: there is no such run or model.
        """
        alike: dict[frozenset[tuple[str, str]], dict[str, str]] = {}  # by the other settings: run by seed
        for run in runs:
            settings = settings_of(run.checkpoint.state)
            seed = settings.pop(SEED, "")
            of_seed = alike.setdefault(frozenset(settings.items()), {})
            if seed in of_seed:  # trained twice with the same seed: another model
                alike[frozenset({*settings.items(), ("run", run.name)})] = {seed: run.name}
            else:
                of_seed[seed] = run.name
        models: list[Model] = []
        for names in (list(of_seed.values()) for of_seed in alike.values()):
            shared = _shared_name(names) if len(names) > 1 else names[0]
            taken = {*(model.name for model in models), *(run.name for run in runs if run.name not in names), ""}
            models.append(Model(names[0] if shared in taken else shared, tuple(names)))
        chosen = [model for model in models if baseline is None or baseline in (model.name, *model.runs)]
        if not chosen:
            expected = ", ".join(run.name for run in runs)
            raise UserError(f"--baseline: found {baseline!r}; expected the name of a run: {expected}")
        return cls(models, chosen[0])

    def title(self, model: Model) -> str:
        """The name of a model as a table has it, with its number of seeds and whether it is the baseline."""
        notes = [f"{len(model.runs)} seeds"] if len(model.runs) > 1 else []
        notes += ["baseline"] if model is self.baseline and len(self.models) > 1 else []
        return f"{model.name} ({', '.join(notes)})" if notes else model.name

    def values(self, result: Result, number: int) -> dict[str, Compared]:
        """The values of the column `number`, by the names of the models; a model without numbers is left out."""
        column = result.columns[number]
        measure = measure_of(column)
        found: dict[str, Compared] = {}
        for model in self.models:
            cells = [result.rows[run][number] for run in model.runs if run in result.rows]
            numbers = [cell for cell in cells if isinstance(cell, int | float) and math.isfinite(cell)]
            if numbers and len(numbers) == len(model.runs):
                # A count stays a whole number, which is shown without decimals, unless it is a mean.
                mean = statistics.fmean(numbers) if len(numbers) > 1 else numbers[0]
                deviation = statistics.stdev(numbers) if len(numbers) > 1 else None
                found[model.name] = Compared(mean, deviation, len(numbers))
        human = result.rows[HUMAN][number] if HUMAN in result.rows else None
        if measure is None or len(found) < 2:
            return found
        badness = _badness(measure, human if isinstance(human, int | float) else None)
        best = min(badness(value.mean) for value in found.values()) if badness else None
        base = found.get(self.baseline.name)
        return {
            name: Compared(
                value.mean,
                value.deviation,
                value.seeds,
                difference=None if base is None or value is base else _difference(measure, value.mean, base.mean),
                verdict=_verdict(value, base, badness, column) if badness and base and value is not base else "",
                is_best=badness is not None and badness(value.mean) == best,
            )
            for name, value in found.items()
        }

    def table(self, result: Result, *, left_out: tuple[str, ...] = ()) -> Table:
        """A row per measure and a column per model, with its mean, deviation and difference to the baseline.

        Args:
            result: a row of it per run, and rows such as that of the human texts, which become columns too.
            left_out: columns of the result whose titles begin in one of these ways are left out.
        """
        names = {run for model in self.models for run in model.runs}
        others = [row for row in result.rows if row not in names]
        formatted = dict(result.formatted())
        rows: list[list[str | Cell | Term | None]] = []
        for number, column in enumerate(result.columns):
            if column.title.startswith(left_out):
                continue
            measure, values = measure_of(column), self.values(result, number)
            title: str | Term = column.title
            if measure is not None:
                title = Term(column.title, measure.name, measure.meaning, measure.better)
            cells = [_cell(values.get(model.name), measure, column) for model in self.models]
            rows.append([title, *cells, *(formatted[_row_key(other)][number] for other in others)])
        header = ["", *map(self.title, self.models), *(" ".join(_row_key(other)) for other in others)]
        return Table(header, rows, result.signature)

    def verdicts(self, results: Sequence[Result], titles: Sequence[str]) -> list[Verdict]:
        """For each model but the baseline: what is better, what is worse, and what makes no clear difference.

        Args:
            results: in which the columns are looked up.
            titles: of the columns to compare, in the order of the list.
        """
        found: dict[str, list[tuple[Result, int]]] = {}
        for result in results:
            for number, column in enumerate(result.columns):
                found.setdefault(column.title, []).append((result, number))
        verdicts = []
        for model in self.models:
            lists: dict[str, list[str]] = {BETTER: [], WORSE: [], SAME: []}
            clauses = []
            for title in titles:
                for result, number in found.get(title, ()):
                    column, values = result.columns[number], self.values(result, number)
                    value, base = values.get(model.name), values.get(self.baseline.name)
                    if value is None or base is None or not value.verdict:
                        continue
                    change = f"{title} {_signed(value, measure_of(column), column)}"
                    levels = " → ".join(str(format_value(one.mean, column.digits)) for one in (base, value))
                    lists[value.verdict].append(f"{change} ({levels})")
                    if title in SENTENCE:
                        clauses.append(f"{SENTENCE[title][value.verdict]} ({change})")
            if any(lists.values()):
                heading = f"{self.title(model)} against {self.title(self.baseline)}"
                said = " and ".join(filter(None, [", ".join(clauses[:-1]), *clauses[-1:]]))
                sentence = f"Compared with {self.baseline.name}, {model.name} {said}." if said else ""
                verdicts.append(Verdict(heading, sentence, lists))
        return verdicts


def _row_key(row: str | tuple[str, ...]) -> tuple[str, ...]:
    return (row,) if isinstance(row, str) else row


def _shared_name(names: Sequence[str]) -> str:
    """What names have in common at their beginnings, or else at their ends, without a rest like `-seed-` or `/`."""
    start = os.path.commonprefix(names)
    end = os.path.commonprefix([name[::-1] for name in names])[::-1]
    stripped = (re.sub(r"([-_./ ]+s|[-_./ ]*seed|^s)?[-_./ ]*\d*$", "", start), re.sub(r"^[\d]*[-_./ ]+", "", end))
    return stripped[0] or stripped[1]


def _badness(measure: Measure, human: float | None) -> Callable[[float], float] | None:
    """What is to be small; None if no direction is better."""
    directions: Mapping[str, Callable[[float], float]] = {
        HIGHER: lambda x: -x, LOWER: lambda x: x, ZERO: abs, ONE: lambda x: abs(x - 1),
    }  # fmt: skip
    if measure.better == LIKE_HUMAN and human is not None:
        return lambda x: abs(x - human)
    return directions.get(measure.better)


def _difference(measure: Measure, value: float, base: float) -> float | None:
    if not measure.relative:
        return value - base
    return 100 * (value / base - 1) if base else None


def _verdict(value: Compared, base: Compared, badness: Callable[[float], float], column: Column) -> str:
    deviations = [one.deviation for one in (value, base) if one.deviation is not None]
    if deviations:  # two standard errors of the difference of the means; the larger deviation stands for a single seed
        least = 2 * max(deviations) * math.sqrt(1 / value.seeds + 1 / base.seeds)
    else:
        least = max(NEARLY * abs(base.mean), 0.5 * 10**-column.digits)
    # What is to be near to 0, to 1 or to the human text may lie on the other side of it and about as far away.
    gain = badness(base.mean) - badness(value.mean)
    if abs(gain) <= least:
        return SAME
    return BETTER if gain > 0 else WORSE


def _signed(value: Compared, measure: Measure | None, column: Column) -> str:
    """A difference with its sign; in percent if it is relative."""
    if value.difference is None:
        return ""
    relative = measure is not None and measure.relative
    text = f"{value.difference:+,.1f}%" if relative else f"{value.difference:+,.{column.digits}f}"
    return text.replace("-", "−")


def _cell(value: Compared | None, measure: Measure | None, column: Column) -> Cell:
    if value is None:
        return Cell(None)
    text = format_value(value.mean, column.digits)
    if value.deviation is not None:
        text = f"{text} ± {format_value(value.deviation, column.digits)}"
    return Cell(text, _signed(value, measure, column), value.verdict, value.is_best)
