"""Damaged and hostile text files: every reader is right, as the format has it, or refuses in one line."""

import json
import signal
from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given

from agg_fairseq.data.alignments import ParallelSplit, read_links
from agg_fairseq.data.word_pairs import read_word_pairs
from agg_fairseq.evaluation.bleu import read_reference as read_plain_reference
from agg_fairseq.evaluation.fairseq_logs import read_entries, read_translations
from agg_fairseq.evaluation.text_metrics import FIELDS, read_texts
from tests.hostile import AMOUNTS, damaged, refusal, special_files

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


class Case:
    """A reader, a file that it takes, and what the format says is in it; None where that is too long to say."""

    def __init__(self, valid, read, oracle=None):
        self.valid, self.read, self.oracle = valid, read, oracle


def lines_of(content):
    """The lines of a UTF-8 text, less a mark in front of it; only a line feed ends one. None for another text."""
    try:
        text = content.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError:
        return None
    return text.removesuffix("\n").split("\n") if text else []


def texts_oracle(content):
    return [{field: record[field] for field in FIELDS} for record in map(json.loads, lines_of(content))]


def read_fields(path):
    return [{field: record[field] for field in FIELDS} for record in read_texts(path)]


def pairs_oracle(content):
    rows = [[field.strip() for field in line.split("\t")] for line in lines_of(content)]
    return [(first, second, float(score)) for first, second, score in rows]


def read_pairs(path):
    found = read_word_pairs(path)
    return list(zip(found.first, found.second, found.scores, strict=True))


def parallel():
    sides = [[torch.tensor([*sentence, 2]) for sentence in side] for side in SENTENCES]
    return ParallelSplit("train.en-de", ("en", "de"), *sides, (10, 10), 2)


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
    found = read_links(path, parallel())
    pairs = zip(found.source.tolist(), found.target.tolist(), strict=True)
    return sorted(zip(pairs, found.count.tolist(), strict=True))


def reference_oracle(content):
    return [line.rstrip() for line in lines_of(content)]


def read_reference(path):
    return read_plain_reference(path, SimpleNamespace(references=["a", "b", "c"], path="log"))


CASES = {
    "generate log": Case(LOG, read_translations),
    "texts": Case(TEXTS, read_fields, texts_oracle),
    "word pairs": Case(PAIRS, read_pairs, pairs_oracle),
    "alignments": Case(LINKS, read_link_counts, links_oracle),
    "training log": Case(TRAIN_LOG, read_entries),
    "reference": Case(b"One.\nTwo \xe2\x82\xac.\nThree.\n", read_reference, reference_oracle),
}


def check(case, content, path):
    path.write_bytes(content)
    said, found = refusal(case.read, path)
    if said is None and case.oracle is not None:
        expected = case.oracle(content)
        assert repr(found) == repr(expected), (content, found, expected)  # NaN is NaN


@AMOUNTS
@pytest.mark.parametrize("name", CASES)
def test_a_damaged_file_is_read_right_or_refused_in_one_line(amount, name, tmp_path):
    path, case = tmp_path / "file", CASES[name]
    path.write_bytes(case.valid)
    assert refusal(case.read, path)[0] is None
    check(case, case.valid, path)
    amount(given(damaged(case.valid))(lambda content: check(case, content, path)))()


@pytest.fixture
def _no_hang():
    """A reader that waits for what never comes is stopped, and the test fails."""

    def stop(number, frame):
        raise AssertionError("the reader hangs")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("_no_hang")
@pytest.mark.parametrize("name", CASES)
def test_what_is_no_file_is_refused_at_once(name, tmp_path):
    for path in special_files(tmp_path).values():
        assert refusal(CASES[name].read, path)[0] is not None
