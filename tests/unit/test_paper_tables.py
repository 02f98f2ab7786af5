"""The papers' numbers in scripts/**/*.tsv are those of the papers' texts, in the same order.

The texts of the papers are not part of the repository; without AGG_DATA/../papers, the tests are skipped.
"""

import html
import os
import re
from pathlib import Path
from typing import NamedTuple

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


class Cells(NamedTuple):
    """Cells of a TSV in the order of the paper's text: row by row, or column by column."""

    rows: str = ""  # all
    by: str = "row"
    columns: slice = slice(None)
    gap: int = 90
    """The most characters between two of them, such as the label of a row."""


NAMES = [
    f"{folder}/{path.stem}"
    for folder in ("wikitext103", "wikitext2", "wmt14_en_de")
    for path in sorted((ROOT / "scripts" / folder).glob("*.tsv"))
]
WORDS = "{0}: optimum; {1}: optimum; {0}: criminal; {1}: criminal; {0}: happiness; {1}: happiness"
TABLES = {
    "wikitext103/agg-tables-1-2": (
        Cells("study-mle; study-freeze"),
        Cells("study-mle; study-freeze-bc; study-freeze-b; study-freeze-c"),
    ),
    "wikitext103/agg-table-4": (Cells("ul; ul-agg"), Cells("human")),
    "wikitext103/agg-tables-5-15": (
        Cells(by="column", columns=slice(0, 1), gap=500),
        Cells(by="column", columns=slice(1, None), gap=1500),
    ),
    "wikitext103/agg-table-6": (Cells(by="column"),),
    "wmt14_en_de/agg-table-7": (
        Cells("base-mle; big-mle; base-cosreg; big-cosreg; base-adv; big-adv; SC base (quoted); "
              "SC big (quoted); base-agg; big-agg"),
    ),
    "wikitext103/agg-tables-8-9": (Cells("mle; agg; no-g1; no-g2"), Cells("mle; agg; static")),
    "wikitext103/agg-table-13": (
        Cells("mle: homepage; agg: homepage; mle: Werewolf; agg: Werewolf; mle: policymakers; "
              "agg: policymakers", "column"),
    ),
    "wmt14_en_de/agg-table-14": (Cells(WORDS.format("base-mle", "base-agg"), "column"),),
    "wikitext103/agg-figure-5": (),
    "wmt14_en_de/agps-table-2": (
        Cells("agps-base-mle; agps-big-mle; agps-base-cosreg; agps-big-cosreg; "
              "Adv MLE base (quoted); Adv MLE big (quoted); SC base (quoted); SC big (quoted); "
              "agps-base-agps; agps-big-agps"),
    ),
    "wmt14_en_de/agps-words": tuple(
        Cells(f"{row}: optimum; {row}: criminal; {row}: happiness", "column")
        for row in ("agps-base-mle", "agps-base-cosreg", "agps-base-agps")
    ),
    "wmt14_en_de/cosreg-table-2": (
        Cells("ConvS2S (quoted); De-En, DSL (quoted); cosreg-base-mle; De-En, Dual-NMT (quoted); "
              "cosreg-base-cosreg; De-En, ConvS2S (quoted); cosreg-big-mle; cosreg-de-en-mle; "
              "cosreg-big-cosreg; cosreg-de-en-cosreg"),
    ),
    "wikitext103/f2-tables-3-8": (
        Cells("f2; f2-joint; f2-mle", columns=slice(1, None)),
        Cells("f2; f2-transfer", columns=slice(0, 1)),
        Cells("f2; f2-transfer", columns=slice(2, None)),
    ),
    "wikitext103/f2-table-4": (
        Cells(columns=slice(0, 1), gap=700),
        Cells("f2-mle; f2", "column", slice(1, None), gap=1500),
    ),
    "wikitext103/f2-table-9": (),  # its numbers follow from those of Table 2: test_table.py
    "wikitext103/f2-table-10": (
        Cells(columns=slice(0, 1), gap=170),
        *(
            Cells(rows, by, slice(first, first + 12), gap)
            for first in (1, 13, 25, 37)
            for rows, by, gap in (
                ("f2-mle", "row", 0), ("f2-face; f2-ul-token", "column", 30),
                ("f2-ul-token-seq; f2", "row", 30), ("human", "row", 0),
            )
        ),
    ),
}  # fmt: skip
"""The cells of those whose text has not all of them row by row."""

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
    for beginning in re.finditer(re.escape(f" {cells[0]} "), text):
        position = beginning.start()
        for cell in cells:
            position = text.find(f" {cell} ", position, position + gap + len(cell) + 2)
            if position < 0:
                break
            position += len(cell) + 1
        else:
            return True
    return False


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
    """Every one of them, but where nothing of a table is compared."""
    text, (columns, table), compared = read_text_layer(name), table_cells(name), set()
    numbers = {}
    for row, cells in table.items():
        for index, cell in enumerate(cells):
            if cell not in ("", "-"):
                numbers[row, index] = cell
    blocks = TABLES.get(name, (Cells(),))
    for block in blocks:
        places = []
        for row in block.rows.split("; ") if block.rows else table:
            places.append([(row, index) for index in range(len(columns))[block.columns]])
        if block.by == "column":
            places = zip(*places, strict=True)
        chosen = [place for part in places for place in part if place in numbers]
        assert follow_each_other([numbers[place] for place in chosen], text, block.gap), block
        compared |= {*chosen}
    assert not blocks or compared == numbers.keys()
