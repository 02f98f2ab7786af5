"""Prints a table of a paper, with our numbers beside the paper's.

    python scripts/table.py scripts/wikitext103/agg-table-3.tsv runs/seed-1 runs/seed-2 [--changes]

The first lines of TABLE.tsv begin with # and are printed above the table. The next line has the
names of the columns, FILE/TITLE: the column TITLE of RUNS/ROW/FILE.json, which a command of
agg-fairseq wrote with --json. Each other line has the name of a row and the paper's numbers, with
nothing or - where it has none. The rows `human` and `unigram` are in the files of the others. Of
several folders RUNS, one per seed, the table has mean ± standard deviation (n − 1); trainings that
differ in more than their seed are refused, by the settings.json that train.sh writes into their
folders; those without it are named above the table.

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
SETTINGS = "settings.json"
OF_ALL = (HUMAN, UNIGRAM)  # rows that are in the files of all others
MOST_COLUMNS = 4  # beside numbers of a paper; more become rows
SEED_SETTINGS = {"common.seed", "changed", "checkpoint.finetune_from_model"}
"""Entries of settings.json in which seeds of one training differ: the last has the digest of the
settings of the training that it starts from, which are compared themselves."""
Line = list[tuple[str | None, str | None]]  # for each column the paper's number, and ours
Notes = dict[str, dict[str, None]]  # to be printed, with the rows that each is about


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
    notes, columns, papers = read_table(options.table)
    for row in papers:
        add_notes(notes, row, options.runs)
    metrics, ours = read_cells(columns, [*papers], options.runs, notes)
    lines = table_lines(papers, ours, metrics, options.changes)
    for note, rows in notes.items():
        print(f"{note}: {', '.join(rows)}" if rows else note)
    print(f"\n{layout(columns, lines)}")
    if len(options.runs) > 1:
        print(f"\nMean ± standard deviation over {len(options.runs)} seeds.")


def read_table(path: Path) -> tuple[Notes, list[str], dict[str, list[str]]]:
    """The lines above the table; the names of the columns; the paper's numbers by row."""
    notes: Notes = {}
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            notes[line[1:].strip()] = {}
        else:
            lines.append(line)
    (_, *columns), *body = csv.reader(lines, delimiter="\t")
    return notes, columns, {row: numbers for row, *numbers in body}


def add_notes(notes: Notes, row: str, runs: Sequence[Path]) -> None:
    """Adds to the notes what was changed for the trainings of the row, and where nothing says it.

    UserError for trainings of the row that are not those of different seeds.
    """
    folders = [run / row for run in runs if (run / row).is_dir()]
    files = [folder / SETTINGS for folder in folders if (folder / SETTINGS).is_file()]
    for folder in folders:
        is_training = files or any(folder.glob("checkpoint*.pt"))
        if is_training and folder / SETTINGS not in files:
            note = f"Found no {SETTINGS}, which says how it was trained"
            notes.setdefault(note, {})[str(folder)] = None
    settings = list(map(read_settings, files))
    for file, other in zip(files[1:], settings[1:], strict=True):
        different = []
        for key in sorted({*settings[0], *other} - SEED_SETTINGS):
            if settings[0].get(key) != other.get(key):
                different.append(f"{key}: {settings[0].get(key)}, {other.get(key)}")
        if different:
            raise UserError(
                f"{files[0].parent}, {file.parent}: found other settings ({'; '.join(different)}); "
                "expected trainings that differ in their seed alone"
            )
    seeds = [run_settings.get("common.seed") for run_settings in settings]
    if len(set(seeds)) < len(seeds):
        raise UserError(f"{row}: found the seeds {seeds}; expected each once")
    for run_settings in settings:
        if run_settings.get("changed"):
            notes.setdefault(f"Not as published ({run_settings['changed']})", {})[row] = None


def read_settings(file: Path) -> dict[str, Any]:
    """The settings of a training, with those of the training that it starts from, as `start KEY`."""
    settings = read_json_object(file, "settings that train.sh wrote")
    match settings.get("checkpoint.finetune_from_model"):
        case [str(start), *_] if (before := (file.parent / start).parent / file.name).is_file():
            for key, value in read_settings(before).items():
                if key not in SEED_SETTINGS:
                    settings[f"start {key}"] = value
    return settings


def find(result: Result, title: str) -> tuple[str, str] | None:
    """The metric and the key of a column."""
    return {shown: pair for pair, shown in column_titles(result.columns).items()}.get(title)


def row_of_file(result: Result, row: str) -> str | None:
    """The name that a row of the table has in a file of its folder, such as that of a checkpoint."""
    for name in result.rows:
        if name == row or (name not in OF_ALL and row not in OF_ALL):
            return name
    return None


def read_cells(
    columns: Sequence[str], rows: Sequence[str], runs: Sequence[Path], notes: Notes
) -> tuple[list[Metric | None], dict[str, list[SeedValues]]]:
    """The metric of each column, None where nothing was measured, and the cells of each row."""
    metrics: list[Metric | None] = [None] * len(columns)
    cells: dict[str, list[SeedValues]] = {row: [] for row in rows}
    for row in rows:
        for index, column in enumerate(columns):
            values: dict[Path, Value] = {}
            for run in runs:
                values[run], metric = _value(run, row, column, rows, notes)
                metrics[index] = metrics[index] or metric
            cells[row].append(SeedValues(values))
    return metrics, cells


def _value(
    folder: Path, row: str, column: str, rows: Sequence[str], notes: Notes
) -> tuple[Value, Metric | None]:
    """Our value, "not run", or None if it is not defined; and its metric, if it was measured. A column
    that a file does not have is noted."""
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
        if pair := find(result, title):
            of = row_of_file(result, row)
            return None if of is None else result.shown(of, *pair), METRICS[pair[0]]
        notes.setdefault(f"Found no column {title} in {path.name}", {})[row] = None
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
    first, *_ = ours
    for row, numbers in papers.items():
        lines[row], differences = [], []
        for number, cell, base, metric in zip_longest(numbers, ours[row], ours[first], metrics):
            paper = None if number in ("", "-") else number
            lines[row].append((paper, cell.format(metric.digits if metric else 0)))
            change = None
            if metric and row not in (first, *OF_ALL):
                change = format_change(cell.change(base, relative=metric.relative), metric)
            differences.append((None, change))
        if changes and set(differences) != {(None, None)}:
            lines[f"Δ {row}"] = differences
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
