"""Prints the claims of the papers, claims.tsv: the paper's change, ours, and what was predicted.

    python -m scripts.claims runs/small [runs/small-2 …] [--write COMMAND]

A claim is the change of one measure (`column`) from one row of a table (`base`) to another (`row`):
its paper's numbers are in the table's file, ours in RUNS, of which further ones are further seeds.
Changes are in percent for measures whose ratio counts, such as perplexities, otherwise in their
unit. `sign` is what the paper says: up, down, or 0 for a change that stays below 3% or 0.1.
A claim is reproduced if our change has this sign, with several seeds by more than two standard
errors; a prediction is right if our mean is between `least` and `largest`. `--write` also writes
docs/results/claims.json, with COMMAND and the versions.
"""

import argparse
import csv
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agg_fairseq.columns import Metric
from agg_fairseq.result import SeedValues, format_change, format_table

from .results import ROOT, format_lines, surroundings
from .table import read_cells, read_table

SMALL_CHANGES = {True: 3.0, False: 0.1}
"""What still counts as no change: in percent, where a measure is relative, or in its unit."""
HEADER = ["", "paper", "miniature", "predicted", "reproduced", "as predicted"]


def read_claims() -> list[dict[str, str]]:
    """The lines of claims.tsv."""
    text = (ROOT / "scripts" / "claims.tsv").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return list(csv.DictReader(lines, delimiter="\t"))


def paper_number(text: str) -> float:
    """A number of a paper's table, such as 8.48k."""
    return float(text.removesuffix("k")) * (1000 if text.endswith("k") else 1)


def change_of(
    claim: dict[str, str], runs: Sequence[Path]
) -> tuple[Metric | None, float | None, SeedValues]:
    """The measure, the paper's change and ours; None for what was not measured or has no number."""
    _, columns, papers = read_table(ROOT / "scripts" / f"{claim['table']}.tsv")
    pair = [claim["row"], claim["base"]]
    (metric,), cells = read_cells([claim["column"]], pair, runs, {})
    is_relative = metric is not None and metric.relative
    row, base = (cells[name][0] for name in pair)
    numbers = []
    for name in pair:
        texts = papers.get(name, [])[columns.index(claim["column"]) :][:1]
        numbers.append(SeedValues({"": paper_number(texts[0])} if texts else {}))
    paper = numbers[0].change(numbers[1], relative=is_relative)
    return metric, paper.mean if paper.numbers else None, row.change(base, relative=is_relative)


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
        metric, paper, ours = change_of(claim, options.runs)
        least, largest = float(claim["least"]), float(claim["largest"])
        if metric is None or not ours.numbers:
            lines.append([claim["claim"], "", "not run", "", "", ""])
            continue
        unit = "%" if metric.relative else ""
        shown = [f"{value:+g}{unit}".replace("-", "−") for value in (least, largest)]
        papers = SeedValues({} if paper is None else {"": paper})
        lines.append(
            [
                claim["claim"],
                format_change(papers, metric) or "",
                format_change(ours, metric) or "",
                " to ".join(shown),
                is_reproduced(claim["sign"], ours, metric.relative),
                "yes" if least <= ours.mean <= largest else "no",
            ]
        )
        rows.append({"name": [claim["claim"], "mean"], "predicted": [least, largest]})
        if paper is not None:
            rows[-1]["paper"] = paper
        for seed, value in enumerate(ours.by_seed.values(), start=1):
            if isinstance(value, float | int):
                rows.append({"name": [claim["claim"], str(seed)], "miniature": value})
    print(format_table(HEADER, lines))
    reproduced, right = ([line[index] for line in lines].count("yes") for index in (4, 5))
    print(f"\n{len(lines)} claims: {reproduced} reproduced, {right} as predicted")
    if options.write is not None:
        values = {
            "facts": {"command": options.write, **surroundings()},
            "labels": ["", "seed"],
            "columns": ["paper", "miniature", "predicted"],
            "rows": rows,
        }
        path = ROOT / "docs" / "results" / "claims.json"
        path.write_text(format_lines(values), encoding="utf-8")


if __name__ == "__main__":
    main()
