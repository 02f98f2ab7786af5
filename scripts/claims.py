"""Prints the claims of the papers, claims.tsv: the paper's change, ours, and what was predicted.

    python -m scripts.claims runs/small [runs/small-2 …] [--write COMMAND]

A claim is the change of one measure (`column`) from one row of a table (`base`) to another (`row`):
its paper's numbers are in the table's file, ours in RUNS, of which further ones are further seeds.
Changes are in percent for measures whose ratio counts, such as perplexities, otherwise in their
unit. `sign` is what the paper says: up, down, or 0 for a change that stays below 3% or 0.1.
A claim is reproduced if our change has this sign, with several seeds by more than two standard
errors; a prediction is right if our mean is between `least` and `largest`. --write also writes
docs/results/claims.json, with COMMAND and the versions.
"""

import argparse
import csv
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agg_fairseq.columns import METRICS, Metric
from agg_fairseq.result import SeedValues, format_change, format_table

from .command import ROOT
from .results import surroundings, write_results
from .table import read_cells, read_table

SMALL_CHANGES = {True: 3.0, False: 0.1}
"""What still counts as no change: in percent, where a measure is relative, or in its unit."""
HEADER = ["", "paper", "miniature", "predicted", "reproduced", "as predicted"]


def read_claims() -> list[dict[str, str]]:
    """The lines of claims.tsv."""
    text = (ROOT / "scripts" / "claims.tsv").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return list(csv.DictReader(lines, delimiter="\t"))


def find_metric(column: str) -> Metric:
    """The measure of a column FILE/TITLE: of those whose title fits, the one that says most."""
    title, fitting = column.partition("/")[2], []
    for metric in METRICS.values():
        pattern = re.escape(metric.title).replace(r"\ \{\}", r"( .*)?").replace(r"\{\}", ".*")
        if re.fullmatch(pattern, title):
            fitting.append(metric)
    return max(fitting, key=lambda metric: len(metric.title))


def paper_number(text: str) -> float:
    """A number of a paper's table, such as 8.48k."""
    return float(text.removesuffix("k")) * (1000 if text.endswith("k") else 1)


def changes(claim: dict[str, str], runs: Sequence[Path]) -> tuple[SeedValues, SeedValues]:
    """The paper's change, if it has numbers, and ours, by seed."""
    is_relative = find_metric(claim["column"]).relative
    _, columns, papers = read_table(ROOT / "scripts" / f"{claim['table']}.tsv")
    pair = [claim["row"], claim["base"]]
    _, cells = read_cells([claim["column"]], pair, runs, {})
    theirs, ours = [], []
    for name in pair:
        texts = papers.get(name, [])[columns.index(claim["column"]) :][:1]
        theirs.append(SeedValues({"": paper_number(texts[0])} if texts else {}))
        ours.append(cells[name][0])
    paper, measured = (row.change(base, relative=is_relative) for row, base in (theirs, ours))
    return paper, measured


def is_reproduced(sign: str, ours: SeedValues, is_relative: bool) -> str:
    """Whether our change has the paper's sign: yes, no, or unclear."""
    if sign == "0":
        return "yes" if abs(ours.mean) <= SMALL_CHANGES[is_relative] else "no"
    change = ours.mean if sign == "+" else -ours.mean
    error = 2 * (ours.deviation or 0.0) / math.sqrt(len(ours.numbers))
    return "yes" if change > error else "no" if change < -error else "unclear"


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        "claims.py", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUNS")
    parser.add_argument("--write", metavar="COMMAND")
    options = parser.parse_args(arguments)
    lines: list[list[str]] = []
    rows: list[dict[str, Any]] = []
    for claim in read_claims():
        name, metric = claim["claim"], find_metric(claim["column"])
        paper, ours = changes(claim, options.runs)
        least, largest = float(claim["least"]), float(claim["largest"])
        unit = "%" if metric.relative else ""
        predicted = f"{least:+g}{unit} to {largest:+g}{unit}"
        cells, verdicts = [format_change(paper, metric) or "", "not run", predicted], ["", ""]
        rows.append({"name": [name, "mean"], "predicted": [least, largest]})
        if paper.numbers:
            rows[-1]["paper"] = paper.mean
        if ours.numbers:
            cells[1] = format_change(ours, metric) or ""
            verdicts[0] = is_reproduced(claim["sign"], ours, metric.relative)
            verdicts[1] = "yes" if least <= ours.mean <= largest else "no"
        for seed, value in enumerate(ours.by_seed.values(), start=1):
            rows.append({"name": [name, str(seed)], "miniature": value})
        lines.append([name, *(cell.replace("-", "−") for cell in cells), *verdicts])
    print(format_table(HEADER, lines))
    run = sum(line[2] != "not run" for line in lines)
    reproduced, right = ([line[index] for line in lines].count("yes") for index in (4, 5))
    print(f"\n{len(lines)} claims, {run} run: {reproduced} reproduced, {right} as predicted")
    if options.write is not None:
        facts = {"command": options.write, **surroundings()}
        titles = {"labels": ["", "seed"], "columns": HEADER[1:4]}
        write_results("claims", {"facts": facts, **titles, "rows": rows})


if __name__ == "__main__":
    main()
