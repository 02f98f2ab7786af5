"""Collects what the trainings of a table measured into docs/results/NAME.json, for a table of a page.

    python -m scripts.results NAME TABLE.tsv RUNS [RUNS …] --command "make demo" --text "WikiText-2"

TABLE.tsv names rows and columns as for table.py, whose other RUNS are further seeds. The file has their numbers, not
rounded, and how they were measured: run this on the machine and with the versions that measured them. The table of a
page is marked with it, as docs/README.md says.
"""

import argparse
import itertools
import json
import platform
import re
import subprocess
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from agg_fairseq.result import Result

from .command import ROOT
from .table import find, read_table, row_of_file

PACKAGES = "torch fairseq ve-fairseq fairseq-fixed transformers numpy pytorch-optimizer".split()


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes the file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("name")
    parser.add_argument("table", type=Path, metavar="TABLE.tsv")
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUNS")
    parser.add_argument("--command", required=True)
    parser.add_argument("--text", help="what was trained on")
    options = parser.parse_args(arguments)
    _, titles, rows = read_table(options.table)
    columns: dict[str, list[str]] = {}
    collected: dict[tuple[str, ...], dict[str, Any]] = {}
    settings: list[Mapping[str, object]] = []
    for row, (seed, folder) in itertools.product(rows, enumerate(options.runs, start=1)):
        for column in titles:
            file, _, title = column.partition("/")
            path = folder / row / f"{file}.json"
            if not path.is_file():
                continue
            measured = Result.read(path)
            settings.append(measured.settings)
            if (pair := find(measured, title)) is None:
                raise SystemExit(f"error: {path}: found no column {title!r}")
            metric, key = pair
            values = collected.setdefault((row, str(seed)), {})
            value = measured.value(row_of_file(measured, row), metric, key)
            values[metric] = values.get(metric, {}) | {key: value} if key else value
            if key not in columns.setdefault(metric, []):
                columns[metric].append(key)
    facts = {"command": options.command}
    if options.text:
        facts["text"] = options.text
    common = dict(set(settings[0].items()).intersection(*(of.items() for of in settings[1:])))
    common = {name: value for name, value in settings[0].items() if name in common}
    result = Result(collected, columns, common, facts | surroundings(), ["", "seed"])
    print(write_results(options.name, result.json()))


def surroundings() -> dict[str, str]:
    """The commit, the machine and the versions."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True
    )
    machine = platform.processor() or platform.machine()
    if torch.cuda.is_available():
        machine = torch.cuda.get_device_name()
    elif Path("/proc/cpuinfo").is_file():
        if named := re.search(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text()):
            machine = named[1]
    versions = [f"Python {platform.python_version()}"]
    for package in PACKAGES:
        try:
            versions.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            continue
    return {"commit": commit.stdout.strip(), "machine": machine, "versions": ", ".join(versions)}


def write_results(name: str, values: dict[str, Any]) -> Path:
    """Writes a file of docs/results."""
    path = ROOT / "docs" / "results" / f"{name}.json"
    path.write_text(format_lines(values), encoding="utf-8")
    return path


def format_lines(values: dict[str, Any]) -> str:
    """JSON with a line for each fact and each row, so that changes can be read."""
    dump = partial(json.dumps, ensure_ascii=False)
    parts = []
    for key, value in values.items():
        text = dump(value)
        if key == "facts":
            lines = [f"  {dump(name)}: {dump(fact)}" for name, fact in value.items()]
            text = "{\n" + ",\n".join(lines) + "\n }"
        elif key == "rows":
            text = "[\n" + ",\n".join(f"  {dump(row)}" for row in value) + "\n ]"
        parts.append(f" {dump(key)}: {text}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    main()
