"""Collects what the trainings of a table measured into docs/results/NAME.json, for a table of a page.

    python scripts/results.py NAME TABLE.tsv RUNS [RUNS …] --command "make demo" --text "WikiText-2"

TABLE.tsv names rows and columns as for table.py, whose other RUNS are further seeds. The file has their numbers, not
rounded, and how they were measured: run this on the machine and with the versions that measured them. The table of the
page follows a line `<!--results:NAME.json-->`, and may have fewer rows and columns (docs/README.md).
"""

import argparse
import csv
import json
import platform
import subprocess
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import torch

from agg_fairseq.columns import column_titles
from agg_fairseq.result import Result

ROOT = Path(__file__).parent.parent
PACKAGES = ("torch", "fairseq", "ve-fairseq", "fairseq-fixed", "transformers", "numpy")


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
    lines = options.table.read_text(encoding="utf-8").splitlines()
    header, *rows = csv.reader((line for line in lines if not line.startswith("#")), delimiter="\t")
    columns: dict[str, list[str]] = {}
    collected: dict[tuple[str, ...], dict[str, dict[str, object]]] = {}
    settings: list[dict[str, object]] = []
    for seed, folder in enumerate(options.runs, start=1):
        for row, *_ in rows:
            for column in header[1:]:
                file, _, title = column.partition("/")
                path = folder / row / f"{file}.json"
                if path.is_file():
                    measured = Result.read(path)
                    settings.append(dict(measured.settings))
                    measure, key, value = find(measured, row, title)
                    collected.setdefault((row, str(seed)), {}).setdefault(measure, {})[key] = value
                    if key not in columns.setdefault(measure, []):
                        columns[measure].append(key)
    facts = {"command": options.command, **({"text": options.text} if options.text else {})}
    common = {
        name: value
        for name, value in settings[0].items()
        if all(of.get(name) == value for of in settings)
    }
    result = Result(collected, columns, common, facts | surroundings(), ["", "seed"])
    path = ROOT / "docs" / "results" / f"{options.name}.json"
    path.write_text(text_of(result.json()), encoding="utf-8")
    print(path)


def find(result: Result, row: str, title: str) -> tuple[str, str, object]:
    """The measure, the key and the value of a column of a row."""
    for pair, shown in column_titles(result.columns).items():
        if shown == title:
            return *pair, result.value(row, *pair)
    raise SystemExit(f"error: found no column {title!r} of {row!r}; expected one of its results")


def surroundings() -> dict[str, str]:
    """The commit, the machine and the versions."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True
    )
    machine = platform.processor() or platform.machine()
    if torch.cuda.is_available():
        machine = torch.cuda.get_device_name()
    elif Path("/proc/cpuinfo").is_file():
        names = [
            line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line
        ]
        machine = names[0].partition(": ")[2] if names else machine
    versions = [f"Python {platform.python_version()}"]
    for package in PACKAGES:
        try:
            versions.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            continue
    return {"commit": commit.stdout.strip(), "machine": machine, "versions": ", ".join(versions)}


def text_of(values: dict) -> str:
    """JSON with a line for each fact and each row, so that changes can be read."""
    parts = []
    for key, value in values.items():
        if isinstance(value, dict) and key == "facts":
            lines = [f"  {dump(name)}: {dump(fact)}" for name, fact in value.items()]
            parts.append(f' "{key}": {{\n' + ",\n".join(lines) + "\n }")
        elif key == "rows":
            parts.append(' "rows": [\n' + ",\n".join(f"  {dump(row)}" for row in value) + "\n ]")
        else:
            parts.append(f' "{key}": {dump(value)}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def dump(value: object) -> str:
    """A value in one line."""
    return json.dumps(value, ensure_ascii=False)


if __name__ == "__main__":
    main()
