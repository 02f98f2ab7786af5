"""Prints a table of a paper, with our numbers beside the paper's.

    python scripts/table.py scripts/wikitext103/agg-table-3.tsv runs/seed-1 runs/seed-2 [--changes]

The first lines of TABLE.tsv begin with # and are printed above the table. The next line has the
names of the columns, FILE/TITLE: the column TITLE of RUNS/ROW/FILE.json, which a command of
agg-fairseq wrote with --json. Each other line has the name of a row and the paper's numbers, with
nothing or - where it has none. The rows `human` and `unigram` are in the files of the others. Of
several folders RUNS, one per seed, the table has mean ± standard deviation (n − 1).

`not run` marks what is not there, `quoted` a system of others, whose name ends in (quoted), and a
dash a value that is not defined. --changes adds the differences from the first row, paired by seed.
"""

from __future__ import annotations

import argparse
import csv
import signal
import sys
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

from agg_fairseq.columns import METRICS, column_titles
from agg_fairseq.names import HUMAN, UNIGRAM
from agg_fairseq.result import Result, SeedValues, Value, format_change, format_table

NOT_RUN, QUOTED = "not run", "quoted"
OF_ALL = (HUMAN, UNIGRAM)  # rows that are in the files of all others
MOST_COLUMNS = 4  # beside numbers of a paper; more become rows


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
    print("\n".join(line[1:].strip() for line in lines if line.startswith("#")), end="\n\n")
    header, *rows = csv.reader((line for line in lines if not line.startswith("#")), delimiter="\t")
    print(table(header[1:], {row[0]: row[1:] for row in rows}, options.runs, options.changes))
    if len(options.runs) > 1:
        print(f"\nMean ± standard deviation over {len(options.runs)} seeds.")


def table(
    columns: Sequence[str], rows: dict[str, list[str]], runs: Sequence[Path], changes: bool
) -> str:
    """The table in Markdown; `rows` are the paper's numbers."""
    found = {
        row: [{run: _cell(run, row, column, [*rows]) for run in runs} for column in columns]
        for row in rows
    }
    metrics = [
        next(
            (
                METRICS[name]
                for of_row in found.values()
                for _, name in of_row[index].values()
                if name
            ),
            None,
        )
        for index in range(len(columns))
    ]
    # cells by the name of the row: the paper's, and ours
    lines: dict[str, list[tuple[str | None, str | None]]] = {}
    of_first: list[SeedValues] = []
    for name, numbers in rows.items():
        cells = [
            SeedValues({run: value for run, (value, _) in cell.items()}) for cell in found[name]
        ]
        ours = [
            cell.format(metric.digits if metric else 0)
            for cell, metric in zip(cells, metrics, strict=True)
        ]
        lines[name] = [
            (None if number in ("", "-") else number, cell)
            for number, cell in zip_longest(numbers, ours)
        ]
        of_first = of_first or cells
        if changes and of_first is not cells and name not in OF_ALL:
            differences = [
                metric and format_change(cell.change(base, relative=metric.relative), metric)
                # fmt: skip
                for cell, base, metric in zip(cells, of_first, metrics, strict=True)
            ]
            if any(differences):
                lines[f"Δ {name}"] = [(None, difference) for difference in differences]
    names, grid = list(lines), list(lines.values())
    titles = [column.partition("/")[2] or column for column in columns]
    if len(titles) != len(set(titles)):  # the same measure of several files
        titles = [column.replace("/", " ", 1) for column in columns]
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


def _cell(folder: Path, row: str, column: str, rows: Sequence[str]) -> tuple[Value, str]:
    """Our value, "not run", or None if it is not defined; and the name of its metric, "" if it was
    not measured."""
    file, slash, title = column.partition("/")
    if row.endswith("(quoted)"):
        return QUOTED, ""
    if not slash:  # of the paper alone
        return "", ""
    for path in (folder / name / f"{file}.json" for name in (rows if row in OF_ALL else [row])):
        if not path.is_file():
            continue
        result = Result.read(path)
        names = [
            name for name in result.rows if (name == row if row in OF_ALL else name not in OF_ALL)
        ]
        for pair, shown in column_titles(result.columns).items():
            if shown == title:
                return result.shown(names[0], *pair) if names else None, pair[0]
    return NOT_RUN, ""


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head`: whoever reads may go
    sys.exit(main())
