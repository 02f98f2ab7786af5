"""Comparison of the models of a report with one of them, the baseline: runs of several seeds count as one model."""

from __future__ import annotations

import math
import os.path
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..errors import UserError
from ..measures import MEASURES, Columns, Measure, column_titles
from ..names import HUMAN
from ..result import Result, SeedValues, format_change, format_value
from .page import Table, Term, Verdict
from .runs import Run, settings_of

NEARLY = 0.01
SEED = "--seed"  # the option in which the runs of one model differ
BETTER, WORSE, SAME = "better", "worse", "same"
RULE = (
    f"A difference is clear if it is larger than {NEARLY:.0%} of the baseline's value and than half a unit of the last "
    "decimal that is shown (one seed of each model), or than two standard errors (several seeds, whose differences are "
    "paired where both models have the same seeds). In the tables, ▲ is better than the baseline, ▽ is worse, and the "
    "best value is bold."
)
"""What the words and marks of a comparison mean."""


class Compared(NamedTuple):
    """What a table shows of a measure of a model."""

    measure: Measure
    value: SeedValues  # in the unit of tables
    change: SeedValues | None  # from the baseline; None for the baseline itself
    verdict: str  # `BETTER`, `WORSE` or `SAME`; empty if no direction is better, or for the baseline
    is_best: bool

    @property
    def text(self) -> str | None:
        """Mean and deviation."""
        return self.value.format(self.measure.digits)

    @property
    def note(self) -> str:
        """The mean change with a minus sign as it is printed; the seeds' deviation is beside the value itself."""
        if self.change is None or not self.change.numbers:
            return ""
        return str(format_change(SeedValues({"": self.change.mean}), self.measure)).replace("-", "−")


@dataclass(frozen=True)
class Comparison:
    """The models of a report. Several runs that differ by their seed alone are one, with what their names share."""

    models: Mapping[str, Mapping[str, str]]  # by the name of the model and the seed the name of the run
    baseline: str  # the name of one of the models

    @classmethod
    def of_runs(cls, runs: Sequence[Run], baseline: str | None = None) -> Comparison:
        """Groups runs whose settings differ by the seed alone; `baseline` names a run or model; None: the first."""
        alike: dict[frozenset[tuple[str, str]], dict[str, str]] = {}  # by the other settings: run by seed
        for run in runs:
            settings = settings_of(run.checkpoint.state)
            seed = settings.pop(SEED, "")
            if seed in alike.get(frozenset(settings.items()), {}):  # trained twice with the same seed: another model
                settings["run"] = run.name
            alike.setdefault(frozenset(settings.items()), {})[seed] = run.name
        models: dict[str, Mapping[str, str]] = {}
        for of_seed in alike.values():
            first, *others = names = list(of_seed.values())
            # what the names of several seeds have in common at their beginnings, without a rest like `-seed-`, or ends
            shared = re.sub(r"([-_./ ]+s|[-_./ ]*seed|^s)?[-_./ ]*\d*$", "", os.path.commonprefix(names))
            end = os.path.commonprefix([name[::-1] for name in names])[::-1]
            shared = shared or re.sub(r"^\d*[-_./ ]+", "", end)
            taken = {*models, *(run.name for run in runs), ""}
            models[shared if others and shared not in taken else first] = of_seed
        chosen = [name for name, of_seed in models.items() if baseline in (None, name, *of_seed.values())]
        if not chosen:
            expected = ", ".join(run.name for run in runs)
            raise UserError(f"--baseline: found {baseline!r}; expected the name of a run: {expected}")
        return cls(models, chosen[0])

    def title(self, model: str) -> str:
        """The name of a model as a table has it, with its number of seeds and whether it is the baseline."""
        notes = [f"{len(self.models[model])} seeds"] if len(self.models[model]) > 1 else []
        notes += ["baseline"] if model == self.baseline and len(self.models) > 1 else []
        return f"{model} ({', '.join(notes)})" if notes else model

    def compare(self, result: Result, measure: str, key: str) -> dict[str, Compared]:
        """A measure of the models that have a number, from a result with a row per run."""
        values = {}
        for model, runs in self.models.items():
            of_seed = {seed: result.shown(run, measure, key) for seed, run in runs.items() if run in result.rows}
            if SeedValues(of_seed).numbers:
                values[model] = SeedValues(of_seed)
        human = result.shown(HUMAN, measure, key) if HUMAN in result.rows else None
        declared = MEASURES[measure]
        distance = declared.distance(human if isinstance(human, float | int) else None)
        least = min(distance(value.mean) for value in values.values()) if distance and len(values) > 1 else None
        base, compared = values.get(self.baseline), {}
        for model, value in values.items():
            is_alone = base is None or model == self.baseline
            change, verdict = (None, "") if is_alone else _against(value, base, declared, distance)
            is_best = least is not None and distance(value.mean) == least
            compared[model] = Compared(declared, value, change, verdict, is_best)
        return compared

    def table(self, result: Result, *, left_out: Sequence[str] = ()) -> Table:
        """A row per measure but those `left_out`, and a column per model and per other row, such as the human texts."""
        runs = {run for of_seed in self.models.values() for run in of_seed.values()}
        others = [row for row in result.rows if row not in runs]
        rows: list[list[Any]] = []
        for (measure, key), title in column_titles(result.columns).items():
            if measure not in left_out:
                compared, declared = self.compare(result, measure, key), MEASURES[measure]
                cells = [format_value(result.shown(row, measure, key), declared.digits) for row in others]
                rows.append([Term(title, declared), *map(compared.get, self.models), *cells])
        return Table(["", *map(self.title, self.models), *map(str, others)], rows, result.signature)

    def verdicts(self, results: Sequence[Result], columns: Columns) -> list[Verdict]:
        """For each model but the baseline: what is better, worse or the same in the first result with each column."""
        compared: dict[str, dict[str, Compared]] = {}  # by title
        for column in column_titles(columns):
            result = next((result for result in results if column in column_titles(result.columns)), None)
            if result is not None:
                compared[column_titles(result.columns)[column]] = self.compare(result, *column)
        verdicts = []
        for model in self.models:
            lists: dict[str, list[str]] = {BETTER: [], WORSE: [], SAME: []}
            for title, by_model in compared.items():
                value, base = by_model.get(model), by_model.get(self.baseline)
                if value is not None and value.verdict:
                    means = [format_value(model.value.mean, model.measure.digits) for model in (base, value)]
                    lists[value.verdict].append(f"{title} {value.note} ({' → '.join(map(str, means))})")
            if any(lists.values()):
                verdicts.append(Verdict(f"{self.title(model)} against {self.title(self.baseline)}", lists))
        return verdicts


def _against(
    value: SeedValues, base: SeedValues, measure: Measure, distance: Callable[[float], float] | None
) -> tuple[SeedValues, str]:
    """The change from the baseline, and whether it is clear.

    What is to be near to 0, to 1 or to the human text may lie on the other side of it and about as far away: the
    verdict compares the distances.
    """
    paired = len(value.numbers.keys() & base.numbers.keys()) > 1
    both = [value, base] if paired else [SeedValues({"mean": seeds.mean}) for seeds in (value, base)]
    change = both[0].change(both[1], relative=measure.relative)
    if distance is None:
        return change, ""
    after, before = (SeedValues({seed: distance(x) for seed, x in seeds.numbers.items()}) for seeds in both)
    gains = before.change(after)
    if not gains.numbers:  # an infinity against another
        return change, ""
    deviations = [seeds.deviation for seeds in (value, base) if seeds.deviation is not None]
    if paired:  # two standard errors of the mean gain
        least = 2 * (gains.deviation or 0.0) / math.sqrt(len(gains.numbers))
    elif deviations:  # the same of two independent means; the larger deviation stands for that of a single seed
        least = 2 * max(deviations) * math.sqrt(1 / len(value.numbers) + 1 / len(base.numbers))
    else:
        least = max(NEARLY * abs(base.mean), 0.5 * 10**-measure.digits)
    return change, SAME if abs(gains.mean) <= least else BETTER if gains.mean > 0 else WORSE
