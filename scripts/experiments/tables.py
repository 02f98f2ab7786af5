"""Measures the models of an experiment, and prints and writes its table and pictures."""

from __future__ import annotations

import contextlib
import statistics
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agg_fairseq import plots
from agg_fairseq.files import write_json, write_whole
from agg_fairseq.names import HUMAN
from agg_fairseq.report import ReportOptions, write_report
from agg_fairseq.result import UNDEFINED, format_table, format_value

from .corpora import prepare
from .experiment import Experiment, Measure, Method, Value, Workspace, say
from .measures import NotRun
from .training import is_trained

NOT_RUN, QUOTED = "not run", "quoted"
MOST_COLUMNS = 4
"""The largest number of measures that have columns. More have rows, and the methods columns."""
WIDTH = 120
"""Of the lines under a table."""

Cells = Sequence[Sequence[Sequence[Value]]]
"""A row per method, a column per measure, a value per seed."""


def show(workspaces: Sequence[Workspace], key: str, experiment: Experiment) -> None:
    """Prints an experiment, and writes its table, numbers and pictures into the output folder.

    With --show, nothing is written if none of its models is trained.

    Args:
        workspaces: one per seed.
        key: name of the entry, such as `agg-3`.
        experiment: its models are trained, as far as they will be.
    """
    for workspace in workspaces:
        workspace.signatures.clear()
    stem = workspaces[0].output / (experiment.name or f"tables/{key}")
    trained = any(is_trained(workspace, model) for workspace in workspaces for model in experiment.models())
    is_kept = trained or workspaces[0].train  # --show writes no table in which every model is not run
    table = ""
    if experiment.measures:
        cells = [
            [[_value(workspace, method, measure) for workspace in workspaces] for measure in experiment.measures]
            for method in experiment.methods
        ]
        table = render(experiment.methods, experiment.measures, cells, wide=experiment.wide, changes=experiment.changes)
        if is_kept:
            _write_numbers(stem, workspaces, experiment, cells)
    notes = _sample_texts(workspaces[0], experiment) if experiment.samples else []
    if experiment.name is None:
        smaller = "" if workspaces[0].scale == "paper" else " The paper's numbers are of its own scale."
        notes.append(textwrap.fill(f"Scale: {workspaces[0].scale}.{smaller} {experiment.note}", WIDTH))
    elif experiment.note:
        notes.append(textwrap.fill(experiment.note, WIDTH))
    if len(workspaces) > 1:
        seeds = ", ".join(str(workspace.seed) for workspace in workspaces)
        notes.append(f"Mean ± standard deviation over n = {len(workspaces)} seeds: {seeds}.")
    notes.append("\n".join(dict.fromkeys(line for workspace in workspaces for line in workspace.signatures)))
    text = "\n\n".join(filter(None, [experiment.title, table, *notes]))
    print(text)
    if is_kept and (experiment.measures or experiment.name is None):
        write_whole(stem.with_name(f"{stem.name}.md"), lambda path: path.write_text(text + "\n", encoding="utf-8"))
    for workspace in workspaces:
        for line in _draw(workspace, stem, experiment):
            print(line)
    if experiment.trade_off and is_kept and (points := points_of(experiment, cells)):
        path = stem.with_name(f"{stem.name}-trade-off.png")
        figure = plots.trade_off(points, experiment.trade_off)
        write_whole(path, lambda temporary: plots.save(figure, temporary, "png"))
        print(path)
    if experiment.report:
        runs = {
            workspace.name(model): workspace.folder(model)
            for workspace in workspaces
            for model in experiment.models()
            if is_trained(workspace, model)
        }
        if runs:
            data = prepare(workspaces[0], experiment.models()[0].corpus).binarized
            say("writing the report")
            report = write_report(runs, data, stem.with_name("report.html"), ReportOptions(max_texts=100))
            for error in report.errors:
                say(f"the report lacks a section: {error}")
            print(report.path)


def _sample_texts(workspace: Workspace, experiment: Experiment) -> list[str]:
    """A paragraph for each text of `experiment.samples`: its prefix, and what each method makes of it."""
    found = {}
    for method in experiment.methods:
        with contextlib.suppress(NotRun):
            if method.model is not None:
                found[method.label] = experiment.samples(workspace, method.model).details["texts"]
    paragraphs = []
    for number, of_methods in enumerate(zip(*found.values(), strict=True), 1):
        parts = {f"Text {number}, prefix": of_methods[0]["prefix"]}
        parts |= {label: text["continuation"] for label, text in zip(found, of_methods, strict=True)}
        lines = (f"{label}: {' '.join(text.split())}" for label, text in parts.items())
        paragraphs.append("\n".join(textwrap.fill(line, WIDTH, subsequent_indent="  ") for line in lines))
    return paragraphs


def _value(workspace: Workspace, method: Method, measure: Measure) -> Value:
    if method.model is None:
        return QUOTED
    try:
        return measure.value(workspace, method.model, HUMAN if method.human else method.model.name)
    except NotRun:
        return NOT_RUN


def _write_numbers(stem: Path, workspaces: Sequence[Workspace], experiment: Experiment, cells: Cells) -> None:
    """Writes the numbers as JSON: of one seed as they are, of several by seed."""
    rows = []
    for method, row in zip(experiment.methods, cells, strict=True):
        values: dict[str, Any] = {"method": method.label}
        for measure, by_seed in zip(experiment.measures, row, strict=True):
            values[measure.label] = by_seed[0]
            if len(workspaces) > 1:
                values[measure.label] = {str(one.seed): value for one, value in zip(workspaces, by_seed, strict=True)}
        rows.append(values)
    signatures = list(dict.fromkeys(line for workspace in workspaces for line in workspace.signatures))
    numbers = {"title": experiment.title, "scale": workspaces[0].scale, "signatures": signatures, "rows": rows}
    write_json(stem.with_name(f"{stem.name}.json"), numbers)


def render(
    methods: Sequence[Method], measures: Sequence[Measure], cells: Cells, *, wide: bool = False, changes: bool = False
) -> str:
    """A table in Markdown, with a column of the paper's numbers beside each of ours, if the paper has any.

    Args:
        methods: one per row of `cells`.
        measures: one per column of `cells`.
        cells: the values of each seed; of several, the table has mean ± standard deviation.
        wide: whether methods have rows in any case.
        changes: whether the row of each further model is followed by its changes from the first one, seed by seed.
    """
    ours = [[_shown(values, measure.digits) for values, measure in zip(row, measures, strict=True)] for row in cells]
    papers = [[dict(enumerate(method.paper)).get(index) for index in range(len(measures))] for method in methods]
    names, labels = [method.label for method in methods], [measure.label for measure in measures]
    if len(measures) > MOST_COLUMNS and not wide:
        names, labels = labels, names
        ours, papers = _transposed(ours), _transposed(papers)
    elif changes:
        compared = [place for place, method in enumerate(methods) if place and not method.human]
        for place in reversed(compared):
            pairs = zip(measures, cells[0], cells[place], strict=True)
            names.insert(place + 1, f"Δ {methods[place].label}")
            ours.insert(place + 1, [_change(measure, *values) for measure, *values in pairs])
            papers.insert(place + 1, [None] * len(measures))
    header, columns = [""], [names]
    for label, paper, own in zip(labels, _transposed(papers), _transposed(ours), strict=True):
        if any(cell is not None for cell in paper):
            header.append(f"{label}, paper")
            columns.append(paper)
        header.append(label)
        columns.append(own)
    return format_table(header, _transposed(columns))


def _transposed(rows: Sequence[Sequence[str | None]]) -> list[list[str | None]]:
    return [list(column) for column in zip(*rows, strict=True)]


def _change(measure: Measure, before: Sequence[Value], after: Sequence[Value]) -> str | None:
    """A cell: how a measure changes between two models of the same seeds."""
    pairs = [
        (float(b), float(a))
        for b, a in zip(before, after, strict=True)
        if isinstance(b, float | int) and isinstance(a, float | int) and (b or not measure.relative)
    ]
    if not pairs:
        return None
    changes = [100 * (a / b - 1) if measure.relative else a - b for b, a in pairs]
    digits, unit = (1, "%") if measure.relative else (measure.digits, "")
    shown = f"{statistics.fmean(changes):+,.{digits}f}{unit}"
    return f"{shown} ± {statistics.stdev(changes):,.{digits}f}" if len(changes) > 1 else shown


def _shown(values: Sequence[Value], digits: int) -> str | None:
    """A cell: the value of a single seed; the mean ± standard deviation of several; words once each."""
    if len(set(values)) == 1:  # one seed; or the human text, not run, not defined
        return format_value(values[0], digits)
    numbers = [value for value in values if isinstance(value, float | int)]
    if not numbers:
        return " / ".join(dict.fromkeys(UNDEFINED if value is None else str(value) for value in values))
    shown = format_value(statistics.fmean(numbers), digits)
    if len(numbers) > 1:
        shown = f"{shown} ± {format_value(statistics.stdev(numbers), digits)}"
    return shown if len(numbers) == len(values) else f"{shown} (n = {len(numbers)})"


def points_of(experiment: Experiment, cells: Cells) -> dict[str, list[list[float]]]:
    """By method, the measures of its trade-off for each seed that it was trained with."""
    places = [[measure.label for measure in experiment.measures].index(label) for label in experiment.trade_off]
    points = {}
    for method, row in zip(experiment.methods, cells, strict=True):
        by_seed = zip(*(row[place] for place in places), strict=True)
        points[method.label] = [list(seed) for seed in by_seed if all(isinstance(value, float) for value in seed)]
    return {name: found for name, found in points.items() if found}


def _draw(workspace: Workspace, stem: Path, experiment: Experiment) -> list[str]:
    """Draws the pictures; returns their paths, after a line for each model that is not trained."""
    if not experiment.pictures:
        return []
    models = list(dict.fromkeys(method.model for method in experiment.methods if method.model is not None))
    trained = [model for model in models if is_trained(workspace, model)]
    lines = [f"{workspace.name(model)}: {NOT_RUN}" for model in models if model not in trained]
    for picture in experiment.pictures if trained else ():
        figure = picture.draw(workspace, trained)
        if figure is None:
            continue
        of_seed = f"-{workspace.models}" if workspace.models else ""
        name = picture.name if experiment.name else f"{stem.name}-{picture.name}"
        path = stem.with_name(f"{name}{of_seed}.png")
        write_whole(path, lambda temporary, figure=figure: plots.save(figure, temporary, "png"))
        lines.append(str(path))
    return lines
