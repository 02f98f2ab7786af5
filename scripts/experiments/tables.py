"""Measures the methods of an experiment, and prints and writes its table and pictures."""

from __future__ import annotations

import contextlib
import itertools
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from agg_fairseq import plots
from agg_fairseq.files import atomic_write, write_json
from agg_fairseq.measures import Column, column
from agg_fairseq.report import ReportOptions, write_report
from agg_fairseq.result import Result, SeedValues, format_change, format_table, format_value, is_relative

from .corpora import prepare
from .experiment import Experiment, Measure, Method, Model, Value, Workspace, say
from .measures import NotRun
from .training import is_trained

NOT_RUN, QUOTED = "not run", "quoted"
MOST_COLUMNS = 4  # the largest number of measures that have columns; more have rows, and the methods columns
WIDTH = 120  # of the lines under a table


def show(workspaces: Sequence[Workspace], key: str, experiment: Experiment) -> None:
    """Prints an experiment, and writes its table, numbers and pictures into the output folder.

    There is a workspace per seed. With --show, nothing is written if none of its models is trained.
    """
    first, seeds = workspaces[0], [workspace.seed for workspace in workspaces]
    for workspace in workspaces:
        workspace.signatures.clear()
    stem = first.output / (experiment.name or f"tables/{key}")
    trained = [(one, model) for one in workspaces for model in experiment.models() if is_trained(one, model)]
    is_kept = bool(trained) or first.train  # --show writes no table in which every model is not run
    result = measured(workspaces, experiment)
    notes = [_sample_texts(first, experiment)] if experiment.samples else []
    note = experiment.note
    if experiment.name is None:
        smaller = "" if first.scale == "paper" else " The paper's numbers are of its own scale."
        note = f"Scale: {first.scale}.{smaller} {note}"
    notes.append(textwrap.fill(note, WIDTH))
    if len(seeds) > 1:
        notes.append(f"Mean ± standard deviation over n = {len(seeds)} seeds: {', '.join(map(str, seeds))}.")
    signatures = list(dict.fromkeys(line for workspace in workspaces for line in workspace.signatures))
    table = render(experiment, result) if experiment.measures else ""
    text = "\n\n".join(filter(None, [experiment.title, table, *notes, "\n".join(signatures)]))
    print(text)
    if is_kept and experiment.measures:
        facts = {"title": experiment.title, "scale": first.scale, "signatures": signatures, "rows": []}
        for label in result.rows:
            values = {title: _as_json(value, seeds) for title, value in result[label].items()}
            facts["rows"].append({"method": label, **values})
        write_json(stem.with_name(f"{stem.name}.json"), facts)
    if is_kept and (experiment.measures or experiment.name is None):
        atomic_write(stem.with_name(f"{stem.name}.md"), lambda path: path.write_text(text + "\n", encoding="utf-8"))
    if experiment.pictures:
        for workspace in workspaces:
            _draw(workspace, stem, experiment)
    if experiment.report and trained:
        runs = {workspace.name(model): workspace.folder(model) for workspace, model in trained}
        data = prepare(first, experiment.models()[0].corpus).binarized
        say("writing the report")
        report = write_report(runs, data, stem.with_name("report.html"), ReportOptions(max_texts=100))
        for error in report.errors:
            say(f"the report lacks a section: {error}")
        print(report.path)


def measured(workspaces: Sequence[Workspace], experiment: Experiment) -> Result:
    """A row per method and a column per measure, with the values of all seeds."""
    # With the digits of what is measured, under the title that the table gives it.
    columns = [replace(column(measure.column), title=measure.label) for measure in experiment.measures]
    by_seed = {}
    for workspace in workspaces:
        rows = {
            method.label: [_value(workspace, method, measure) for measure in experiment.measures]
            for method in experiment.methods
        }
        by_seed[workspace.seed] = Result(columns, rows, "")
    return Result.aggregate(by_seed)


def _value(workspace: Workspace, method: Method, measure: Measure) -> Value:
    if method.model is None:
        return QUOTED
    try:
        return measure.value(workspace, method)
    except NotRun:
        return NOT_RUN


def _as_json(value: Value | SeedValues, seeds: Sequence[int | None]) -> object:
    of_seed = value.of_seed if isinstance(value, SeedValues) else dict.fromkeys(seeds, value)
    return {str(seed): of_seed[seed] for seed in seeds} if len(seeds) > 1 else of_seed[seeds[0]]


def render(experiment: Experiment, result: Result) -> str:
    """A table in Markdown of a result of `measured`, with the paper's numbers beside each column that has any."""
    labels = [column.title for column in result.columns]
    lines: dict[str, list[tuple[str | None, str | None]]] = {}  # cells by the name of the line: the paper's, and ours
    first = experiment.methods[0]
    for method in experiment.methods:
        row = result.rows[method.label]
        ours = [format_value(value, column.digits) for value, column in zip(row, result.columns, strict=True)]
        lines[method.label] = list(itertools.zip_longest(method.numbers, ours))  # the paper may have fewer
        if experiment.changes and method is not first:
            changes = [_change(*cells) for cells in zip(row, result.rows[first.label], result.columns, strict=True)]
            if any(changes) and not method.human:
                lines[f"Δ {method.label}"] = [(None, change) for change in changes]
    names, grid = list(lines), list(lines.values())
    if len(labels) > MOST_COLUMNS and not experiment.wide:
        names, labels, grid = labels, names, [list(line) for line in zip(*grid, strict=True)]
    header: list[str] = [""]
    columns: list[Sequence[str | None]] = [names]
    for index, label in enumerate(labels):
        papers, ours = zip(*(line[index] for line in grid), strict=True)
        if any(cell is not None for cell in papers):
            header.append(f"{label}, paper")
            columns.append(papers)
        header.append(label)
        columns.append(ours)
    return format_table(header, list(zip(*columns, strict=True)))


def _change(after: Value | SeedValues, before: Value | SeedValues, column: Column) -> str | None:
    if not isinstance(after, SeedValues) or not isinstance(before, SeedValues):
        return None
    return format_change(after.change(before, relative=is_relative(column)), column)


def _sample_texts(workspace: Workspace, experiment: Experiment) -> str:
    """A paragraph for each text of `experiment.samples`: its prefix, and what each method makes of it."""
    found = {}
    for method in experiment.methods:
        with contextlib.suppress(NotRun):
            found[method.label] = experiment.samples(workspace, method).details["texts"]
    paragraphs = []
    for number, of_methods in enumerate(zip(*found.values(), strict=True), 1):
        parts = {f"Text {number}, prefix": of_methods[0]["prefix"]}
        parts |= {label: text["continuation"] for label, text in zip(found, of_methods, strict=True)}
        lines = (f"{label}: {' '.join(text.split())}" for label, text in parts.items())
        paragraphs.append("\n".join(textwrap.fill(line, WIDTH, subsequent_indent="  ") for line in lines))
    return "\n\n".join(paragraphs)


def _draw(workspace: Workspace, stem: Path, experiment: Experiment) -> None:
    """Draws the pictures, and prints their paths, after a line for each model that is not trained."""
    by_model: dict[Model, Method] = {}
    for method in experiment.methods:
        if method.model is not None:
            by_model.setdefault(method.model, method)
    trained = [method for model, method in by_model.items() if is_trained(workspace, model)]
    for model, method in by_model.items():
        if method not in trained:
            print(f"{workspace.name(model)}: {NOT_RUN}")
    for picture in experiment.pictures if trained else ():
        figure = picture.draw(workspace, trained)
        if figure is None:
            continue
        of_seed = f"-{workspace.models}" if workspace.models else ""
        name = picture.name if experiment.name else f"{stem.name}-{picture.name}"
        path = stem.with_name(f"{name}{of_seed}.png")
        atomic_write(path, lambda temporary, figure=figure: plots.save(figure, temporary, "png"))
        print(path)
