"""The papers' numbers in scripts/**/*.tsv are those of the papers' texts, with the same neighbors.

The texts of the papers are not part of the repository; without AGG_DATA/../papers, the tests are skipped.
"""

import html
import os
import re
from pathlib import Path

import pytest

from scripts.table import read_table
from tests.conftest import ROOT, read_lines

PAPERS = Path(os.environ.get("AGG_DATA", ROOT.parent / "shared" / "data")).parent / "papers"
needs_papers = pytest.mark.skipif(
    not PAPERS.is_dir(), reason=f"needs the papers' texts in {PAPERS}"
)
FILES = {
    "agg": "agg-acl2022",
    "agps": "agps-2021",
    "cosreg": "cosreg-iclr2019",
    "f2": "f2-softmax-emnlp2020",
}
"""The text of each paper, by the first part of the names of its tables."""


NAMES = [
    f"{folder}/{path.stem}"
    for folder in ("wikitext103", "wikitext2", "wmt14_en_de")
    for path in sorted((ROOT / "scripts" / folder).glob("*.tsv"))
]
SLIPS = {
    "kriminalen": "kriminellen",
    "Nakdong": "Naktong",
    "94.2 0.37 10.6k": "94.2 0.11 10.6k",
    "68.1 53.4 77.1": "68.1 53.4 50.0 77.1",
}
"""Errors of the texts, which are those of scanned pages, and what the pages have."""
MEASURES = (
    "PPL KLD MSJ-1 MSJ-2 MSJ-3 SB-1 SB-2 SB-3 Dist-1 Dist-2 Dist-3 Rep (%) Uniq "
    "I(W) S(W) AlignSim frequent medium rare total unseen"
).split()
"""Names of columns in the order of the papers."""


def read_text_layer(name):
    """The paper of a table without markup; the cells of its tables follow each other."""
    paper = FILES[name.partition("/")[2].partition("-")[0]]
    text = html.unescape((PAPERS / f"{paper}.txt").read_text(encoding="utf-8"))
    text = re.sub(r"</?(?:su[bp]|b|br|i|math|t[a-z]+)\b[^<>]*>|-{2,}", " ", text)
    text = re.sub(r"\\(mathbf|uparrow|downarrow)|\*\*|[|$\\‡\[\]^{}↓↑]", " ", text)
    text = f" {' '.join(re.sub(r'[—–]', '-', text).split())} "
    for slip, correct in SLIPS.items():
        text = text.replace(slip, correct)
    return text


def table_cells(name):
    """The names of the columns, and the numbers of each row."""
    return read_table(ROOT / "scripts" / f"{name}.tsv")[1:]


def follow_each_other(cells, text, gap):
    """Whether these numbers are in the text, each at most `gap` characters after the one before."""
    between = f" (?:.{{0,{gap}}} )?"
    return re.search(f" {between.join(map(re.escape, cells))} ", text) is not None


@needs_papers
@pytest.mark.parametrize("name", ["agg-tables-5-15", "f2-table-4"])
def test_prefixes_are_those_of_the_paper(name):
    """But for spaces and WikiText's marks, such as @-@, without which the papers print them."""
    text = read_text_layer(f"wikitext103/{name}")
    for line in read_lines(ROOT / "scripts" / "wikitext103" / f"{name}.txt"):
        assert "Prefix" + re.sub(r"</s>|<unk>|[\W_]", "", line) in re.sub(r"[\W_]", "", text)


@pytest.mark.parametrize("name", NAMES)
def test_columns_have_the_order_of_the_papers(name):
    by_file = {}
    for column in table_cells(name)[0]:
        file, _, measure = column.partition("/")
        if measure.partition(" ")[0] in MEASURES:
            by_file.setdefault(file, []).append([*map(MEASURES.index, measure.split())])
    for measures in by_file.values():
        assert measures == sorted(measures)


@needs_papers
@pytest.mark.parametrize("name", NAMES)
def test_numbers_are_those_of_the_paper(name):
    """Each with two of its neighbors in a row, or in a column."""
    text, (columns, table), found = read_text_layer(name), table_cells(name), set()
    gap = 700 if name.endswith(("agg-tables-5-15", "f2-table-4")) else 90  # those are among texts
    numbers = {}
    for row, cells in table.items():
        numbers |= {(row, index): cell for index, cell in enumerate(cells) if cell not in ("", "-")}
    lines = [[place for place in numbers if place[0] == row] for row in table]
    lines += [[place for place in numbers if place[1] == index] for index in range(len(columns))]
    for line in lines:
        for start in range(max(1, len(line) - 2)):
            part = line[start : start + 3]
            if len(part) > 1 and follow_each_other([numbers[one] for one in part], text, gap):
                found |= {*part}
    assert found == numbers.keys()
