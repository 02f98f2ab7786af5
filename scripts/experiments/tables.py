"""Measures the methods of an experiment, and prints and writes its table and pictures."""

from __future__ import annotations

import contextlib
import itertools
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

from agg_fairseq import plots
from agg_fairseq.errors import UserError
from agg_fairseq.files import atomic_write, write_json
from agg_fairseq.report import write_report
from agg_fairseq.result import SeedValues, format_change, format_table

from .corpora import prepare
from .experiment import Column, Experiment, Method, Model, Value, Workspace, say
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
    trained = [pair for pair in itertools.product(workspaces, experiment.models()) if is_trained(*pair)]
    is_written = bool(trained) or first.train  # --show writes no table in which every model is not run
    rows = measured(workspaces, experiment)
    notes = [_sample_texts(first, experiment)] if experiment.samples else []
    note = experiment.note
    if experiment.name is None:
        smaller = "" if first.scale == "paper" else " The paper's numbers are of its own scale."
        note = f"Scale: {first.scale}.{smaller} {note}"
    notes.append(textwrap.fill(note, WIDTH))
    if len(seeds) > 1:
        notes.append(f"Mean ± standard deviation over n = {len(seeds)} seeds: {', '.join(map(str, seeds))}.")
    signatures = list(dict.fromkeys(line for workspace in workspaces for line in workspace.signatures))
    table = render(experiment, rows) if experiment.columns else ""
    text = "\n\n".join(filter(None, [experiment.title, table, *notes, "\n".join(signatures)]))
    print(text)
    if is_written and experiment.columns:
        facts = {"title": experiment.title, "scale": first.scale, "signatures": signatures, "rows": []}
        for label, cells in rows.items():
            values = {
                title: cell.of_seed if len(seeds) > 1 else cell.of_seed[seeds[0]] for title, cell in cells.items()
            }
            facts["rows"].append({"method": label, **values})
        write_json(stem.with_name(f"{stem.name}.json"), facts)
    if is_written and (experiment.columns or experiment.name is None):
        atomic_write(stem.with_name(f"{stem.name}.md"), lambda path: path.write_text(text + "\n", encoding="utf-8"))
    if experiment.pictures:
        for workspace in workspaces:
            _draw(workspace, stem, experiment)
    if experiment.report and trained:
        runs = {workspace.name(model): workspace.folder(model) for workspace, model in trained}
        data = prepare(first, experiment.models()[0].corpus).binarized
        say("writing the report")
        page = stem.with_name("report.html")
        for reason in write_report(runs, data, page, max_texts=100).values():
            if isinstance(reason, UserError):
                say(f"the report lacks a section: {reason}")
        print(page)


Rows = Mapping[str, Mapping[str, SeedValues]]  # the values of all seeds by the labels of methods and columns


def measured(workspaces: Sequence[Workspace], experiment: Experiment) -> Rows:
    """The value of each column of each method, for the seed of each workspace."""
    rows: dict[str, dict[str, SeedValues]] = {method.label: {} for method in experiment.methods}
    for method in experiment.methods:
        for column in experiment.columns:
            of_seed = {workspace.seed: _value(workspace, method, column) for workspace in workspaces}
            rows[method.label][column.label] = SeedValues(of_seed)
    return rows


def _value(workspace: Workspace, method: Method, column: Column) -> Value:
    if method.model is None:
        return QUOTED
    try:
        return column.read(workspace, method)
    except NotRun:
        return NOT_RUN


def render(experiment: Experiment, rows: Rows) -> str:
    """A table in Markdown of what `measured` returned, with the paper's numbers beside each column that has any."""
    labels = [column.label for column in experiment.columns]
    digits = [column.measure.digits for column in experiment.columns]
    lines: dict[str, list[tuple[str | None, str | None]]] = {}  # cells by the name of the line: the paper's, and ours
    first = experiment.methods[0]
    for method in experiment.methods:
        row = rows[method.label]
        ours = [row[label].format(decimals) for label, decimals in zip(labels, digits, strict=True)]
        lines[method.label] = list(itertools.zip_longest(method.numbers, ours))  # the paper may have fewer
        if experiment.changes and method is not first and not method.human:
            changes = [
                format_change(
                    row[column.label].change(rows[first.label][column.label], relative=column.measure.relative),
                    column.measure,
                )
                for column in experiment.columns
            ]
            if any(changes):
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


def _sample_texts(workspace: Workspace, experiment: Experiment) -> str:
    """A paragraph for each text of `experiment.samples`: its prefix, and what each method makes of it."""
    samples = {}
    for method in experiment.methods:
        with contextlib.suppress(NotRun):
            samples[method.label] = experiment.samples(workspace, method)
    paragraphs = []
    for number, texts in enumerate(zip(*samples.values(), strict=True), 1):
        parts = {f"Text {number}, prefix": texts[0]["prefix"]}
        parts |= {label: text["continuation"] for label, text in zip(samples, texts, strict=True)}
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
