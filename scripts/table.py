"""Prints a table of a paper, with our numbers beside the paper's.

    python scripts/table.py scripts/wikitext103/agg-table-3.tsv runs/seed-1 runs/seed-2 [--changes]

The first lines of TABLE.tsv begin with # and are printed above the table. The next line has the
names of the columns, FILE/TITLE: the column TITLE of RUNS/ROW/FILE.json, which a command of
agg-fairseq wrote with --json. Each other line has the name of a row and the paper's numbers, with
nothing or - where it has none. The rows `human` and `unigram` are in the files of the others. Of
several folders RUNS, one per seed, the table has mean ± standard deviation (n − 1); trainings that
differ in more than their seed are refused.

`not run` marks what is not there, `quoted` a system of others, whose name ends in (quoted), and a
dash a value that is not defined. What was changed for a training (SIZE, ALPHA, KEY=VALUE) is
printed above the table. --changes adds the differences from the first row, paired by seed.
"""

from __future__ import annotations

import argparse
import csv
import signal
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from agg_fairseq.columns import METRICS, Metric, column_titles
from agg_fairseq.errors import UserError, fail
from agg_fairseq.files import read_json_object
from agg_fairseq.names import HUMAN, UNIGRAM
from agg_fairseq.result import Result, SeedValues, Value, format_change, format_table

NOT_RUN, QUOTED = "not run", "quoted"
OF_ALL = (HUMAN, UNIGRAM)  # rows that are in the files of all others
MOST_COLUMNS = 4  # beside numbers of a paper; more become rows
OF_SEED = {"common.seed", "changed", "checkpoint.finetune_from_model"}
"""Entries of settings.json in which seeds of one training differ: the last has the digest of the
settings of the training that it starts from, which are compared themselves."""
Line = list[tuple[str | None, str | None]]  # for each column the paper's number, and ours


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        "table.py", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("table", type=Path, metavar="TABLE.tsv")
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUNS")
    parser.add_argument(
        "--changes", action="store_true", help="also the differences from the first row"
    )
    options = parser.parse_args(arguments)
    lines = options.table.read_text(encoding="utf-8").splitlines()
    header, *body = csv.reader((x for x in lines if not x.startswith("#")), delimiter="\t")
    columns, papers = header[1:], {row[0]: row[1:] for row in body}
    notes = changed_settings([*papers], options.runs)
    metrics, ours = read_cells(columns, [*papers], options.runs)
    table = table_lines(papers, ours, metrics, options.changes)
    print("\n".join([*(x[1:].strip() for x in lines if x.startswith("#")), *notes]), end="\n\n")
    print(layout(columns, table))
    if len(options.runs) > 1:
        print(f"\nMean ± standard deviation over {len(options.runs)} seeds.")


def changed_settings(rows: Sequence[str], runs: Sequence[Path]) -> list[str]:
    """A line for what was changed for some of the trainings, such as ALPHA=0.05.

    UserError for trainings of one row that are not those of different seeds.
    """
    of_note: dict[str, dict[str, None]] = {}
    for row in rows:
        files = [run / row / "settings.json" for run in runs]
        files = [file for file in files if file.is_file()]
        settings = [settings_of(file) for file in files]
        for file, other in zip(files[1:], settings[1:], strict=True):
            first = settings[0]
            keys = [key for key in sorted({*first, *other}) if first.get(key) != other.get(key)]
            if found := [key for key in keys if key not in OF_SEED]:
                found = "; ".join(f"{key}: {first.get(key)}, {other.get(key)}" for key in found)
                raise UserError(
                    f"{files[0].parent}, {file.parent}: found other settings ({found}); expected "
                    "trainings that differ in their seed alone"
                )
        seeds = [of_run.get("common.seed") for of_run in settings]
        if len(set(seeds)) < len(seeds):
            raise UserError(f"{row}: found the seeds {seeds}; expected each once")
        for of_run in settings:
            if of_run.get("changed"):
                of_note.setdefault(of_run["changed"], {})[row] = None
    return [f"Not as published: {', '.join(found)}: {note}" for note, found in of_note.items()]


def settings_of(file: Path) -> dict[str, Any]:
    """The settings of a training, with those of the training that it starts from, as `start KEY`."""
    settings = read_json_object(file, "settings that train.sh wrote")
    match settings.get("checkpoint.finetune_from_model"):
        case [str(start), *_] if (before := (file.parent / start).parent / file.name).is_file():
            before = settings_of(before).items()
            settings |= {f"start {key}": value for key, value in before if key not in OF_SEED}
    return settings


def read_cells(
    columns: Sequence[str], rows: Sequence[str], runs: Sequence[Path]
) -> tuple[list[Metric | None], dict[str, list[SeedValues]]]:
    """The metric of each column, None where nothing was measured, and the cells of each row."""
    metrics: list[Metric | None] = [None] * len(columns)
    cells: dict[str, list[SeedValues]] = {}
    for row in rows:
        cells[row] = []
        for index, column in enumerate(columns):
            values: dict[Path, Value] = {}
            for run in runs:
                values[run], metric = _value(run, row, column, rows)
                metrics[index] = metrics[index] or metric
            cells[row].append(SeedValues(values))
    return metrics, cells


def _value(folder: Path, row: str, column: str, rows: Sequence[str]) -> tuple[Value, Metric | None]:
    """Our value, "not run", or None if it is not defined; and its metric, if it was measured."""
    file, slash, title = column.partition("/")
    if row.endswith("(quoted)"):
        return QUOTED, None
    if not slash:  # of the paper alone
        return "", None
    for name in rows if row in OF_ALL else [row]:
        path = folder / name / f"{file}.json"
        if not path.is_file():
            continue
        result = Result.read(path)
        if row in OF_ALL:
            names = [name for name in result.rows if name == row]
        else:
            names = [name for name in result.rows if name not in OF_ALL]
        for pair, shown in column_titles(result.columns).items():
            if shown == title:
                return result.shown(names[0], *pair) if names else None, METRICS[pair[0]]
    return NOT_RUN, None


def table_lines(
    papers: dict[str, list[str]],
    ours: dict[str, list[SeedValues]],
    metrics: Sequence[Metric | None],
    changes: bool,
) -> dict[str, Line]:
    """The lines of the table by the names of their rows; with `changes` also, as `Δ ROW`, the
    differences from the first row."""
    lines: dict[str, Line] = {}
    first = next(iter(ours))
    for row, numbers in papers.items():
        lines[row] = []
        for number, cell, metric in zip_longest(numbers, ours[row], metrics):
            paper = None if number in ("", "-") else number
            lines[row].append((paper, cell.format(metric.digits if metric else 0)))
        if not changes or row == first or row in OF_ALL:
            continue
        differences: list[str | None] = []
        for cell, base, metric in zip(ours[row], ours[first], metrics, strict=True):
            if metric is None:
                differences.append(None)
            else:
                change = cell.change(base, relative=metric.relative)
                differences.append(format_change(change, metric))
        if any(differences):
            lines[f"Δ {row}"] = [(None, difference) for difference in differences]
    return lines


def layout(columns: Sequence[str], lines: dict[str, Line]) -> str:
    """The table in Markdown: a column of the paper's numbers, where it has some, before each of
    ours, where there are some. Many columns beside numbers of a paper become rows."""
    titles = [column.partition("/")[2] or column for column in columns]
    if len(titles) != len(set(titles)):  # the same measure of several files
        titles = [column.replace("/", " ", 1) for column in columns]
    names, grid = [*lines], [*lines.values()]
    if len(titles) > MOST_COLUMNS and any(paper for line in grid for paper, _ in line):
        names, titles, grid = titles, names, [list(line) for line in zip(*grid, strict=True)]
    head, printed = [""], [names]
    for title, cells in zip(titles, zip(*grid, strict=True), strict=True):
        papers, ours = zip(*cells, strict=True)
        if any(paper is not None for paper in papers):
            head.append(f"{title}, paper")
            printed.append(list(papers))
        if any(cell != "" for cell in ours):
            head.append(title)
            printed.append(list(ours))
    return format_table(head, list(zip(*printed, strict=True)))


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head`: whoever reads may go
    try:
        main()
    except UserError as error:
        fail(str(error))
