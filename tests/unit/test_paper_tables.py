"""The papers' numbers in scripts/**/*.tsv are those of the papers' texts, row by row and column by column.

The texts of the papers are not part of the repository; without AGG_DATA/../papers, the tests are skipped.
"""

import csv
import html
import os
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.conftest import ROOT, read_lines

PAPERS = Path(os.environ.get("AGG_DATA", ROOT.parent / "shared" / "data")).parent / "papers"
AGG, AGPS, COSREG, F2 = "agg-acl2022", "agps-2021", "cosreg-iclr2019", "f2-softmax-emnlp2020"
GROUPS = "frequent medium rare total"
TEXT = "KLD,MSJ-1,MSJ-2,MSJ-3,SB-1,SB-2,SB-3,Dist-1,Dist-2,Dist-3,Rep (%),Uniq".split(",")
WORDS = "optimum criminal happiness"
F2_ROWS = (
    "MLE {f2-mle} FACE {f2-face} UL-token {f2-ul-token} UL-token+seq {f2-ul-token-seq} "
    "F 2 -Softmax {f2} Human {human} (a) Wikitext-103 …"
)


def texts(file: str) -> str:
    """The columns of generated texts that were measured into a file."""
    return "; ".join(f"{file}/{measure}" for measure in TEXT)


def each(template: str, values: Iterable) -> str:
    return " ".join(template.replace("#", str(value)) for value in values)


def neighbors(tokens: str, rows: tuple[str, ...]) -> str:
    """The five neighbors of each token in each of these rows, side by side."""
    columns = " ".join(f"{{{row} {token}[#]}}" for token in tokens.split() for row in rows)
    return each(columns, range(5))


def top(k: int, start: int) -> str:
    """A quarter of F²-Softmax's Table 10; its text has the cells of FACE and UL-token in one row."""
    part = range(start, start + 12)
    mle, sequence, f2 = (
        f"{{{row}[0]}} " + each(f"{{{row}[#]}}", part)
        for row in ("f2-mle", "f2-ul-token-seq", "f2")
    )
    both = "{f2-face[0]} {f2-ul-token[0]} " + each("{f2-face[#]} {f2-ul-token[#]}", part)
    rows = f"MLE {mle} FACE UL-token {both} UL-token+seq {sequence} F 2 -Softmax {f2}"
    return f"={k} {rows}"


TABLES = {
    "wikitext103/agg-tables-1-2": (
        AGG, f"ppl/PPL {GROUPS}; ppl/I(W) {GROUPS}",
        "MLE {study-mle} Freeze {study-freeze} Table 1:",
        "MLE {study-mle} Freeze (b) & (c) {study-freeze-bc} Freeze (b) {study-freeze-b} "
        "Freeze (c) {study-freeze-c} Table 2:",
    ),
    "wikitext103/agg-table-3": (
        AGG, f"ppl/PPL {GROUPS}; uniq/Uniq {GROUPS}; uniq/I(W) total",
        "MLE {mle} AGG {agg} Human {human} Table 3:",
    ),
    "wikitext103/agg-table-4": (
        AGG, f"ppl/PPL {GROUPS}; uniq/Uniq {GROUPS}; uniq/I(W) total",
        "UL {ul} UL + AGG {ul-agg} Human {human} Table 4:",
    ),
    "wikitext103/agg-tables-5-15": (
        AGG,
        f"Table 5; {each('Table 15, text #;', range(1, 5))}",
        "Prefix No. 20 Squadron … MLE … {mle[0]} AGG … {agg[0]} Table 5:",
        each("Method Texts Uniq Prefix … MLE … {mle[#]} AGG … {agg[#]}", range(1, 5)),
    ),
    "wikitext103/agg-table-6": (
        AGG, "words/MEN; words/WS353; words/RG65; words/RW",
        "MEN {mle[0]} {agg[0]} WS353 {mle[1]} {agg[1]} RG65 {mle[2]} {agg[2]} RW {mle[3]} {agg[3]} Table 6:",
    ),
    "wmt14_en_de/agg-table-7": (
        AGG, "bleu/BLEU; bleu/sacreBLEU",
        "Base Big Transformer (…) {base-mle} {big-mle} CosReg (…) {base-cosreg} {big-cosreg} "
        "Adv MLE (…) {base-adv} {big-adv} SC (…) {SC base (quoted)} {SC big (quoted)} "
        "AGG {base-agg} {big-agg} Table 7:",
    ),
    "wikitext103/agg-tables-8-9": (
        AGG, "ppl/PPL total; uniq/Uniq total; uniq/I(W) total",
        "MLE {mle} AGG {agg} no g _1 {no-g1} no g _2 {no-g2} Table 8:",
        "MLE {mle} AGG {agg} static AGG {static} Table 9:",
    ),
    "wikitext103/agg-table-10": (
        AGG, "uniq/I(W) frequent medium rare", "MLE {mle} AGG {agg} Table 10:",
    ),
    "wikitext103/agg-table-11": (
        AGG, "uniq/I(W) frequent medium rare", "UL {ul} UL + AGG {ul-agg} Table 11:",
    ),
    "wikitext103/agg-table-13": (
        AGG, "1; 2; 3; 4; 5",
        "homepage Werewolf policymakers MLE AGG MLE AGG MLE AGG "
        f"{neighbors('homepage Werewolf policymakers', ('mle', 'agg'))} Table 13:",
    ),
    "wmt14_en_de/agg-table-14": (
        AGG, "1; 2; 3; 4; 5",
        f"{WORDS} MLE AGG MLE AGG MLE AGG "
        f"{neighbors(WORDS, ('base-mle', 'base-agg'))} Table 14:",
    ),
    "wikitext103/agg-figure-5": (AGG, "ppl/PPL total; uniq/Uniq total; uniq/I(W) total"),
    "wmt14_en_de/agps-table-1": (
        AGPS, "bleu/BLEU; isotropy/S(W); bleu/sacreBLEU",
        "Baseline {cosreg-base-mle} Freezing Rare Words {agps-base-freeze} Table 1:",
    ),
    "wmt14_en_de/agps-table-2": (
        AGPS, "bleu/BLEU; bleu/sacreBLEU",
        "Baseline (…) {agps-base-mle} Baseline (…) {agps-big-mle} "
        "CosReg (…) {agps-base-cosreg} CosReg (…) {agps-big-cosreg} "
        "Adv MLE (…) {Adv MLE base (quoted)} Adv MLE (…) {Adv MLE big (quoted)} "
        "SC (…) {SC base (quoted)} SC (…) {SC big (quoted)} "
        "AGPS (Ours) {agps-base-agps} AGPS (Ours) {agps-big-agps} Table 2:",
    ),
    "wmt14_en_de/agps-table-3": (
        AGPS, f"align/AlignSim {GROUPS}",
        "Baseline (…) {agps-base-mle} CosReg (…) {agps-base-cosreg} AGPS (Ours) {agps-base-agps} Table 3:",
    ),
    "wikitext103/agps-table-4": (
        AGPS, f"frequency/PPL {GROUPS}",
        "Transformer Baseline {words-mle} CosReg (…) {words-cosreg} AGPS (Ours) {words-agps} Table 4:",
    ),
    "wmt14_en_de/agps-words": (
        AGPS, "1; 2; 3; 4; 5",
        *(
            f"{WORDS} {neighbors(WORDS, (f'agps-base-{row}',))} Table {number}:"
            for number, row in ((10, "mle"), (11, "cosreg"), (12, "agps"))
        ),
    ),
    "wikitext2/cosreg-table-1": (
        COSREG, "valid/PPL; test/PPL",
        "LSTM (…) (tied) 24M {2-layer skip connection LSTM (quoted)} "
        "AWD-LSTM (…) (w.o. finetune) 24M {awd-mle} AWD-LSTM (…) (w.t. finetune) 24M {awd-mle-finetune} "
        "AWD-LSTM (…) + continuous cache pointer 24M {awd-mle-finetune-cache} "
        "MLE-CosReg (w.o. finetune) 24M {awd-cosreg} MLE-CosReg (w.t. finetune) 24M {awd-cosreg-finetune} "
        "MLE-CosReg + continuous cache pointer 24M {awd-cosreg-finetune-cache} Table 1:",
    ),
    "wmt14_en_de/cosreg-table-2": (
        COSREG, "bleu/BLEU; bleu/sacreBLEU",
        "English→German German→English Model BLEU Model BLEU "
        "ConvS2S (…) {ConvS2S (quoted)} DSL (…) {De-En, DSL (quoted)} "
        "Base Transformer (…) {cosreg-base-mle} Dual-NMT (…) {De-En, Dual-NMT (quoted)} "
        "Base Transformer + MLE-CosReg {cosreg-base-cosreg} ConvS2S (…) {De-En, ConvS2S (quoted)} "
        "Big Transformer (…) {cosreg-big-mle} Base Transformer (…) {cosreg-de-en-mle} "
        "Big Transformer + MLE-CosReg {cosreg-big-cosreg} "
        "Base Transformer + MLE-CosReg {cosreg-de-en-cosreg}",
    ),
    "wikitext103/f2-table-1": (F2, f"ppl/PPL total; {texts('top3')}", f"{F2_ROWS} Table 1:"),
    "wikitext103/f2-table-2": (F2, f"ppl/PPL total; {texts('greedy')}", f"{F2_ROWS} Table 2:"),
    "wikitext103/f2-tables-3-8": (
        F2, "ppl/PPL total; texts/KLD; texts/MSJ-2; texts/SB-2; texts/Uniq",
        f"F 2 - О {each('{f2[#]}', range(1, 5))} Softmax × {each('{f2-joint[#]}', range(1, 5))} "
        f"MLE × {each('{f2-mle[#]}', range(1, 5))} Table 3:",
        "From scratch {f2[0]} {f2[2]} {f2[3]} {f2[4]} "
        "Transferred {f2-transfer[0]} {f2-transfer[2]} {f2-transfer[3]} {f2-transfer[4]} Table 8:",
    ),
    "wikitext103/f2-table-4": (
        F2,
        f"Table 4; {each('appendix, text #;', range(1, 5))}",
        "Prefix = Robert Boulter = … MLE … {f2-mle[0]} FACE … {f2-face[0]} UL- token … {f2-ul-token[0]} "
        "UL- token+seq … {f2-ul-token-seq[0]} F 2 -Softmax … {f2[0]} Table 4:",
        each("Model Texts VR (%) Prefix … MLE … {f2-mle[#]} F 2 -Softmax … {f2[#]}", range(1, 5)),
    ),
    "wikitext103/f2-table-5": (
        F2, "articles; words",
        "train test valid # of articles # of words {train} {test} {valid} (a) Wikitext-103 dataset",
    ),
    "wikitext103/f2-table-9": (
        F2,
        each("against f2#;", ("-mle", "-face", "-ul-token", "-ul-token-seq", "")),
        # its numbers follow from those of Table 2: test_table.py
    ),
    "wikitext103/f2-table-10": (
        F2,
        "; ".join(["ppl/PPL total", *(texts(f"top{k}") for k in (3, 5, 10, 20))]),
        *(top(k, 1 + 12 * part) for part, k in enumerate((3, 5, 10, 20))),
        *(f"Human - {each('{human[#]}', range(start, start + 12))}" for start in (1, 13, 25, 37)),
    ),
}  # fmt: skip
"""By TSV: the paper; the columns of the TSV; what the paper's text has, with {row} or {row[column]} for its numbers."""

SLIPS = {
    AGG: {  # as another copy of the paper has it, and Yu et al. (2021) have the first
        "kriminalen": "kriminellen",
        "Nakdong": "Naktong",
    },
    F2: {  # of Table 10, whose cells run into each other; the first is in Table 1
        "94.2 0.37 10.6k": "94.2 0.11 10.6k",
        "68.1 53.4 77.1": "68.1 53.4 50.0 77.1",
        "25.0 94.2 95.2 79.0 78.0 55.0 65.9 80.3 92.9 95.1 96.8 0.01 12.3k 12.9k": "25.0 95.2 78.0 55.0 65.9 92.9 96.8 "
        "0.01 12.9k",
        "25.4 94.2 95.2": "25.4 95.2",
        "97.2 0.55 13.0k 14.1k": "97.2 - 14.1k",
    },
}
"""Errors of the texts, which are those of scanned pages, and what the pages have."""


def plain(text: str) -> str:
    """A text without markup: the cells of a table follow each other, with a space between them."""
    text = html.unescape(re.sub(r"</?(?:su[bp]|b|br|i|math|t[a-z]+)\b[^<>]*>|-{2,}", " ", text))
    text = re.sub(r"\\(mathbf|uparrow|downarrow)|\*\*|[|$\\‡\[\]^{}↓↑]", " ", text)
    return " ".join(re.sub(r"[—–]", "-", text).split())


class Numbers(list):
    """The numbers of a row; those that a template asks for are noted."""

    def __init__(self, numbers):
        super().__init__(numbers)
        self.used = set()

    def __getitem__(self, index):
        self.used.add(index)
        return super().__getitem__(index)

    def __str__(self):
        return " ".join(self[index] for index in range(len(self)))


def read_table(path: Path) -> tuple[list[str], dict[str, Numbers]]:
    """Columns, and rows of numbers, without the empty cells at their ends."""
    lines = [line for line in read_lines(path) if not line.startswith("#")]
    (_, *columns), *rows = csv.reader(lines, delimiter="\t")
    return columns, {row[0].replace(": ", " "): Numbers(row[1:]) for row in rows}


def corrected(paper: str) -> str:
    text = plain((PAPERS / f"{paper}.txt").read_text(encoding="utf-8"))
    for slip, correct in SLIPS.get(paper, {}).items():
        text = text.replace(slip, correct)
    return text


def errors(name: str, path: Path) -> list[str]:
    """The templates that the paper's text lacks, with the numbers of the TSV, and the numbers that none of them has."""
    paper, columns, *templates = TABLES[name]
    text = corrected(paper)
    found, rows = read_table(path)
    expected = []
    for column in filter(None, re.split("; ?", columns)):
        measure, *groups = column.split(" ") if "/" in column else [column]
        expected += [f"{measure} {group}" for group in groups] or [measure]
    wrong = [] if found == expected else [f"columns {found} instead of {expected}"]
    for template in templates:
        pattern = re.escape(template.format_map(rows)).replace("…", ".{0,1500}?")
        if not re.search(pattern, text):
            wrong.append(template.format_map(rows))
    for row, numbers in rows.items() if templates else ():
        for index, number in enumerate(numbers):
            if index not in numbers.used and number not in "-":
                wrong.append(f"{row}: {number} is in no template")
    return wrong


needs_papers = pytest.mark.skipif(
    not PAPERS.is_dir(), reason=f"needs the papers' texts in {PAPERS}"
)


@needs_papers
@pytest.mark.parametrize("name", ["agg-tables-5-15", "f2-table-4"])
def test_prefixes_are_those_of_the_paper(name):
    """But for spaces and WikiText's marks, such as @-@, without which the papers print them."""
    text = corrected(TABLES[f"wikitext103/{name}"][0])
    for line in read_lines(ROOT / "scripts" / "wikitext103" / f"{name}.txt"):
        assert "Prefix" + re.sub(r"</s>|<unk>|[\W_]", "", line) in re.sub(r"[\W_]", "", text)


def test_every_table_of_a_paper_is_compared():
    tables = set()
    for folder in ("wikitext103", "wikitext2", "wmt14_en_de"):
        tables |= {f"{folder}/{path.stem}" for path in (ROOT / "scripts" / folder).glob("*.tsv")}
    assert tables == TABLES.keys()


@needs_papers
@pytest.mark.parametrize("name", TABLES)
def test_numbers_are_those_of_the_paper(name):
    assert not errors(name, ROOT / "scripts" / f"{name}.tsv")
