"""The pages: links resolve, options exist, README links every page, and numbers are those of docs/results.

A table of measured numbers follows a comment `<!--results:NAME.json-->`. The file has each number of the table, by the
names of its row and its column, as docs/README.md describes.
"""

import importlib.util
import json
import math
import re
from pathlib import Path

import pytest

from agg_fairseq.columns import METRICS
from agg_fairseq.result import SeedValues
from tests.conftest import ROOT

README = ROOT / "README.md"
RESULTS = ROOT / "docs" / "results"
FOLDERS = [ROOT / name for name in ("docs", "examples", "configs")]
PAGES = [
    README,
    ROOT / "CONTRIBUTING.md",
    *sorted(page for folder in FOLDERS for page in folder.rglob("*.md")),
]
TABLE = re.compile(
    r"(?:<!-- ?results: ?(\S+?) ?-->\n+)?^(\|.*\n\|[ :|-]+\n(?:\|.*\n)+)", re.MULTILINE
)
NUMBER = re.compile(r"[+−-]?\d[\d,]*(?:\.\d+)?(?:e-?\d+)?")


def anchors(page):
    """Of the headings, as GitHub makes them."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.*)", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_resolve():
    broken = []
    for page in PAGES:
        text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL)
        for link in re.findall(r"\]\((?!https?:)([^)]+)\)", text):
            path, _, anchor = link.partition("#")
            target = page.parent / path if path else page
            if not target.exists() or (anchor and anchor not in anchors(target)):
                broken.append((page.name, link))
    assert not broken


def test_options_exist():
    """In the sources of this package and of fairseq: written out, or as fields of a dataclass."""
    fairseq = importlib.util.find_spec("fairseq") or pytest.skip("needs fairseq")
    folders = [ROOT / name for name in ("agg_fairseq", "scripts", "benchmarks", "examples")]
    files = [
        path for folder in (*folders, Path(fairseq.origin).parent) for path in folder.rglob("*.py")
    ]
    files += (ROOT / "scripts").rglob("*.sh")
    text = "\n".join(path.read_text(errors="replace") for path in files)
    fields = re.findall(r"^    ([a-z]\w*): ", text, re.MULTILINE)
    known = {"--" + field.replace("_", "-") for field in fields}
    known |= {*re.findall(r"--[a-z][\w-]*", text)}
    known |= {"--no-build-isolation", "--strict"}  # of pip and twine
    for page in PAGES:
        page_text = re.sub(r"<!--.*?-->", "", page.read_text())
        assert {*re.findall(r"(?<![\w-])--[a-z][\w-]*", page_text)} <= known, page


def test_readme_links_every_page():
    linked = re.findall(r"\]\((docs/[\w-]+\.md)", README.read_text())
    assert {str(page.relative_to(ROOT)) for page in (ROOT / "docs").glob("*.md")} <= {*linked}


def cells(line: str) -> list[str]:
    """The cells of a line of a table, without markup."""
    texts = re.split(r"(?<!\\)\|", line.strip().strip("|"))
    return [" ".join(re.sub(r"[*`†]|\[(.*?)\]\(.*?\)", r"\1", text).split()) for text in texts]


def read_results(path: Path) -> tuple[list[str], dict[tuple[str, ...], dict[str, list]]]:
    """The labels, and the numbers of each cell by the name of its row and the title of its column: mean and deviation.

    The last label is the seed. Rows of several seeds are averaged; `mean` and `deviation` stand for seeds whose
    own numbers were not kept. A number may be a list of what one cell shows.
    """
    result = json.loads(path.read_text(encoding="utf-8"))
    rows: dict[tuple[str, ...], dict[str, dict[str, object]]] = {}
    for row in result["rows"]:
        *name, seed = row["name"]
        for title, value in values_of_row(row, result["columns"]).items():
            rows.setdefault(tuple(name), {}).setdefault(title, {})[seed] = value
    shown = {name: {title: mean_and_deviation(values) for title, values in of_row.items()}
             for name, of_row in rows.items()}  # fmt: skip
    return result["labels"][:-1], shown


def values_of_row(row: dict, columns: dict | list) -> dict[str, object]:
    """The values of a row by the titles of their columns, in the unit of tables.

    `columns` are titles, or as in what commands write to --json: by measure the keys, such as frequency groups.
    """
    if isinstance(columns, list):
        return {title: row.get(title) for title in columns}
    values = {}
    for measure, keys in columns.items():
        for key in keys:
            of_row = row.get(measure)
            value = of_row.get(key) if isinstance(of_row, dict) else of_row
            title = METRICS[measure].title.format(key).strip()
            values[title] = value if value is None else value * METRICS[measure].scale
    return values


def mean_and_deviation(values: dict[str, object]) -> list[float]:
    """What a cell shows of the values by seed: nothing, a number, several, or mean and standard deviation."""
    if {*values} <= {"mean", "deviation"}:
        numbers = [values.get("mean"), values.get("deviation")]
        if isinstance(numbers[0], list):
            return numbers[0]
        return [number for number in numbers if number is not None]
    seeds = SeedValues(values)
    if not seeds.numbers:
        return []
    return [seeds.mean] if seeds.deviation is None else [seeds.mean, seeds.deviation]


def is_shown(number: str, value: float) -> bool:
    """Whether a number of a page is this value, rounded to its digits."""
    shown = float(number.replace(",", "").replace("−", "-"))
    if "e" in number:
        return math.isclose(shown, value, rel_tol=0.05)
    return abs(shown - value) <= 0.5000001 * 10 ** -len(number.partition(".")[2])


def errors_of_table(file: str, lines: list[str]) -> list[str]:
    """What a table of a page has otherwise than its file."""
    labels, results = read_results(RESULTS / file)
    header, _, *rows = map(cells, lines)
    split = len(labels)
    wrong = [] if header[:split] == labels else [f"{header[:split]} instead of {labels}"]
    names = [tuple(row[:split]) for row in rows]
    if names != [*results]:
        return [*wrong, f"rows {names} instead of {[*results]}"]
    for name, row in zip(names, rows, strict=True):
        titles = [title if title in results[name] else f"{title} total" for title in header[split:]]
        if titles != [*results[name]]:
            return [*wrong, f"columns {titles} instead of {[*results[name]]}"]
        for title, text in zip(titles, row[split:], strict=True):
            numbers, values = NUMBER.findall(text), results[name][title]
            shown = [is_shown(*pair) for pair in zip(numbers, values, strict=False)]
            if len(numbers) != len(values) or not all(shown):
                wrong.append(f"{name}, {title}: {text} instead of {values}")
    return wrong


def errors_of_page(text: str) -> list[str]:
    """What the tables of a page have otherwise than their files."""
    wrong = []
    for file, table in TABLE.findall(text):
        lines = table.splitlines()
        if file:
            wrong += [f"{file}: {error}" for error in errors_of_table(file, lines)]
        elif "-:" in lines[1]:
            wrong.append(f"a table of numbers without a file of results: {lines[0]}")
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_tables_have_the_numbers_of_their_files(page):
    assert not errors_of_page(page.read_text())


def test_every_file_of_results_is_shown_and_says_where_it_is_from():
    shown = [file for page in PAGES for file, _ in TABLE.findall(page.read_text()) if file]
    assert sorted(shown) == sorted(path.name for path in RESULTS.glob("*.json"))
    for path in RESULTS.glob("*.json"):
        facts = json.loads(path.read_text(encoding="utf-8"))["facts"]
        assert {"command", "commit", "machine", "versions"} <= facts.keys(), path
