"""The lines of fairseq-generate, as its source prints them, in any order and with anything between."""

import contextlib
import random

import pytest

from agg_fairseq.errors import UserError
from agg_fairseq.evaluation.fairseq_logs import read_translations
from tests.generate_logs import sentence, write

NOISE = ["", "INFO: 'T-0' is no sentence", "Generate test with beam=5: BLEU4 = 31.23", "A-0\t0-0 1-1", "WARNING | x"]


def read(tmp_path, lines):
    return read_translations(write(tmp_path / "log", lines))


def test_any_order(tmp_path):
    blocks = [sentence(i, f"reference {i}", [(-i, f"hypothesis {i}")], str.upper) for i in range(12)]
    lines = [line for block in blocks for line in block] + NOISE
    for _ in range(5):
        random.shuffle(lines)
        log = read(tmp_path, lines)
        assert log.references == [f"reference {i}" for i in range(12)]
        assert log.tokens == [f"hypothesis {i}" for i in range(12)]
        assert log.texts == [f"HYPOTHESIS {i}" for i in range(12)]
        assert log.decoded
    assert not read(tmp_path, sentence(0)).decoded


@pytest.mark.parametrize(
    ("scores", "best"),
    [((-2.0, -1.0, -3.0), 1), ((-1.0, -2.0), 0), ((-1.0, -1.0), 0), (("nan", -9.0), 1), (("-inf", "-1e-3"), 1)],
)
def test_best_of_several_hypotheses(tmp_path, scores, best):
    hypotheses = [(score, f"h{index}") for index, score in enumerate(scores)]
    log = read(tmp_path, sentence(0, hypotheses=hypotheses, decode=str.upper))
    assert (log.tokens, log.texts) == ([f"h{best}"], [f"H{best}"])


@pytest.mark.parametrize("text", ["", "T-0", "a\u2028b", "a\u0085b", "Translated 5 sentences", "日本", "\\", '"'])
def test_texts(tmp_path, text):
    log = read(tmp_path, sentence(0, text, [(-1, text)]))
    assert log.references == log.tokens == log.texts == [text]


def test_a_byte_order_mark_is_no_text(tmp_path):
    path = tmp_path / "log"
    path.write_text("".join(f"{line}\n" for line in sentence(0)), encoding="utf-8-sig")
    assert read_translations(path).sources == ["s"]


def test_without_sources(tmp_path):
    assert read(tmp_path, [line for line in sentence(0) if not line.startswith("S")]).tokens == ["h"]


TWO = sentence(0) + sentence(1)


def without(start):
    return [line for line in TWO if not line.startswith(start)]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (NOISE, "found 0 references (T-…) and 0 hypotheses (H-…); expected the output of fairseq-generate"),
        (without("T"), "found 0 references (T-…) and 2 hypotheses"),
        (without("D"), "found no D-0; expected 1: a truncated log"),
        (without("T-0"), "found no T-0"),
        (without("H-1"), "found no H-1"),
        (sentence(0, hypotheses=[(-1, "a"), (-2, "b")])[:-2], "found 1 D-0; expected 2"),
        (TWO + ["T-1\tr"], "found 2 T-1; expected 1"),
        (sentence(0) + sentence(2), "none of id 1; expected all of the split: fairseq-generate drops the last,"),
        (["H-0\t-0.5"], "line 1: found no score, tab and text after H-0"),
        (["D-0\tab\tcd"], "line 1: found no score"),
    ],
)
def test_what_is_missing(tmp_path, lines, words):
    with pytest.raises(UserError) as caught:
        read(tmp_path, lines)
    assert words in str(caught.value) and str(tmp_path / "log") in str(caught.value)


def test_every_cut_is_found(tmp_path):
    """But those at the end of a line behind all of what one of the sentences needs."""
    content = "".join(f"{line}\n" for line in TWO)
    path, whole = tmp_path / "log", []
    for end in range(len(content)):
        path.write_text(content[:end])
        with contextlib.suppress(UserError):  # cuts that are found
            whole.append((len(read_translations(path).tokens), content[:end].splitlines()[-1]))
    assert whole == [(1, "D-0\t-0.5\th"), (1, "P-0\t-0.1 -0.2"), (2, "D-1\t-0.5\th")]


@pytest.mark.parametrize("content", [None, b"\xff\xfe", b"S-0\ts\nT-0\tr\nH-0\t-1\th"])
def test_unreadable(tmp_path, content):
    path = tmp_path / "log"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match="unreadable|found no end of the line"):
        read_translations(path)
