"""Damaged and hostile files: every reader is right, as the format has it, or refuses in one line."""

import json
from collections import Counter
from types import SimpleNamespace

import pytest
import torch

from agg_fairseq.data.alignments import ParallelSplit, read_links
from agg_fairseq.data.word_pairs import read_word_pairs
from agg_fairseq.evaluation.bleu import read_reference
from agg_fairseq.evaluation.fairseq_logs import read_entries, read_translations
from agg_fairseq.evaluation.text_metrics import FIELDS, read_texts
from tests.hostile import AMOUNTS, fuzz, refusal

LOG = (
    b"S-1\tein haus\nT-1\ta house\nH-1\t-0.5\ta house\nD-1\t-0.5\ta house\n"
    b"S-0\tja\nT-0\tyes\nH-0\t-1e-1\tyeah\nD-0\t-1e-1\tyeah\nTranslated 2 sentences (4 tokens) in 0.1s\n"
)
TEXTS = b"".join(
    json.dumps({"prefix": f"a {word}", "continuation": f"b c {word}", "reference": "d \u20ac"}).encode() + b"\n"
    for word in ("x", "y", "z")
)
PAIRS = "car\tautomobile\t9.5\nnoon\tstring\t0.5\ncaf\u00e9\tbar\t-1e1\n".encode()
TRAIN_LOG = b"".join(
    b"2026-01-01 | INFO | train_inner | "
    + json.dumps({"epoch": 1, "loss": "9.25", "ppl": str(600 / update), "num_updates": str(update)}).encode()
    + b'\n2026-01-01 | INFO | valid | {"epoch": 1, "valid_ppl": "300.5", "valid_num_updates": "%d"}\n' % update
    for update in (1, 2, 3, 2, 3, 4)
)
LINKS = b"0-0 1-2\n\n2-1 0-0 0-0\n1-1\n"
SENTENCES = ([[5, 6, 7], [4], [8, 8, 9], [4, 5]], [[5, 6, 7], [6], [7, 5], [9, 8]])


def lines_of(content):
    """The lines of a UTF-8 text, less a mark in front of it; only a line feed ends one."""
    text = content.decode("utf-8").removeprefix("\ufeff")
    return text.removesuffix("\n").split("\n") if text else []


def fields_of(records):
    return [{field: record[field] for field in FIELDS} for record in records]


def pairs_oracle(content):
    rows = [[field.strip() for field in line.split("\t")] for line in lines_of(content)]
    return [(first, second, float(score)) for first, second, score in rows]


def links_oracle(content):
    counted = Counter()
    lines = content.removesuffix(b"\n").split(b"\n")
    for line, source, target in zip(lines, *SENTENCES, strict=True):
        for link in line.split():
            s, t = link.split(b"-")
            assert s.isdigit() and t.isdigit()
            counted[source[int(s)], target[int(t)]] += 1
    return sorted(counted.items())


def read_link_counts(path):
    sides = [[torch.tensor([*sentence, 2]) for sentence in side] for side in SENTENCES]
    found = read_links(path, ParallelSplit("train.en-de", ("en", "de"), *sides, (10, 10), 2))
    pairs = zip(found.source.tolist(), found.target.tolist(), strict=True)
    return sorted(zip(pairs, found.count.tolist(), strict=True))


TEXT_FILES = {
    "generate log": (LOG, read_translations, None),
    "texts": (
        TEXTS, lambda path: fields_of(read_texts(path)), lambda content: fields_of(map(json.loads, lines_of(content))),
    ),
    "word pairs": (PAIRS, read_word_pairs, pairs_oracle),
    "alignments": (LINKS, read_link_counts, links_oracle),
    "training log": (TRAIN_LOG, read_entries, None),
    "reference": (
        b"One.\nTwo \xe2\x82\xac.\nThree.\n",
        lambda path: read_reference(path, SimpleNamespace(references=["a", "b", "c"], path="log")),
        lambda content: [line.rstrip() for line in lines_of(content)],
    ),
}  # fmt: skip
"""A file that is taken; its reader; what the format says is in it, None where that is too long to say."""


@AMOUNTS
@pytest.mark.parametrize(("valid", "read", "oracle"), TEXT_FILES.values(), ids=TEXT_FILES)
def test_a_damaged_file_is_read_right_or_refused_in_one_line(files, valid, read, oracle, tmp_path):
    path = tmp_path / "m" / "file"
    path.parent.mkdir()

    def check(content):
        path.write_bytes(content)
        said, found = refusal(read, path)
        if said is None and oracle is not None:
            expected = oracle(content)
            assert found == expected or repr(found) == repr(expected), (content, found, expected)  # NaN is NaN

    path.write_bytes(valid)
    assert refusal(read, path)[0] is None
    check(valid)
    fuzz(check, valid, files)
