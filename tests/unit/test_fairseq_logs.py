"""The lines of fairseq-generate and of fairseq-train, in any order and with anything between."""

import random

import pytest

from agg_fairseq.data.fairseq_logs import read_log, read_translations
from agg_fairseq.errors import UserError
from tests.conftest import write_lines
from tests.generate_logs import sentence

NOISE = [
    "",
    "INFO: 'T-0' is no sentence",
    "Generate test with beam=5: BLEU4 = 31.23",
    "A-0\t0-0 1-1",
]
TWO = sentence(0) + sentence(1)


def read(tmp_path, lines):
    return read_translations(write_lines(tmp_path / "log", lines))


def without(start):
    return [line for line in TWO if not line.startswith(start)]


def test_sentences_in_any_order(tmp_path):
    lines = [*NOISE]
    for i in range(12):
        lines += sentence(i, f"reference {i}", [(-i, f"hypothesis {i}")], str.upper)
    random.shuffle(lines)
    log = read(tmp_path, lines)
    found = [*zip(log.references, log.tokens, log.texts, strict=True)]
    for i in range(12):
        assert found.pop(0) == (f"reference {i}", f"hypothesis {i}", f"HYPOTHESIS {i}")
    assert not found and log.decoded and not read(tmp_path, TWO).decoded
    assert read(tmp_path, without("S")).tokens == ["h", "h"]


@pytest.mark.parametrize(
    ("scores", "best"),
    [((-2.0, -1.0, -3.0), 1), ((-1.0, -1.0), 0), (("nan", -9.0), 1), (("-inf", "-1e-3"), 1)],
)
def test_best_of_several_hypotheses(tmp_path, scores, best):
    hypotheses = [(score, f"h{index}") for index, score in enumerate(scores)]
    log = read(tmp_path, sentence(0, hypotheses=hypotheses, decode=str.upper))
    assert (log.tokens, log.texts) == ([f"h{best}"], [f"H{best}"])


@pytest.mark.parametrize(
    "text", ["", "T-0", "a\u2028b\u0085c", "Translated 5 sentences", "日本 \\"]
)
def test_characters_of_texts_are_kept(tmp_path, text):
    lines = sentence(0, text, [(-1, text)])
    log = read(tmp_path, [f"\ufeff{lines[0]}", *lines[1:]])
    assert log.references == log.tokens == log.texts == [text]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (NOISE, "found 0 T-…, 0 H-…, 0 D-… lines"),
        (without("H-1"), "found 2 T-…, 1 H-…, 2 D-… lines"),
        (sentence(0) + sentence(2), "found 2 of 3 sentences"),
        (["… | data-bin test en-de 10 examples", *TWO], "found 2 of 10 sentences"),
        (["H-0\t-0.5"], "line 1: found half a line"),
        (["T-0\tr2026-01-31 09:00:00 | INFO | fairseq_cli.generate | …"], "line 1: found half a"),
    ],
)
def test_what_is_missing(tmp_path, lines, words):
    with pytest.raises(UserError) as caught:
        read(tmp_path, lines)
    assert words in str(caught.value) and str(tmp_path / "log") in str(caught.value)


def test_a_log_that_ends_within_a_line(tmp_path):
    log = tmp_path / "log"
    log.write_text("\n".join(TWO[:-1]))  # up to D-1
    with pytest.raises(UserError, match="line 9: found half a line: a truncated log"):
        read_translations(log)


def test_a_log_of_training_is_read_in_both_forms(tmp_path):
    log = tmp_path / "train.log"
    log.write_text(
        '{"epoch": 1, "update": 0.5, "loss": "3.5", "rare_tokens": "7", "isotropy": null, '
        '"num_updates": "10"}\n'
        '2026-01-01 | INFO | train_inner | {"epoch": 1, "loss": "3.0", "num_updates": "20"}\n'
        '{"epoch": 1, "valid_loss": "2.0", "valid_num_updates": "20"}\n'
        '{"epoch": 1, "train_loss": "2.5", "train_num_updates": "20"}\n'
        "done training in 3 seconds\n"
        '{"epoch": 1, "update": 0.7, "lo'
    )
    inner, valid, train = read_log(log, "train_inner", "valid", "train")
    assert [(entry["num_updates"], entry["loss"]) for entry in inner] == [(10, 3.5), (20, 3.0)]
    assert inner[0]["rare_tokens"] == 7 and "isotropy" not in inner[0]
    assert valid[0]["loss"] == 2.0 and train[0]["loss"] == 2.5
    with pytest.raises(UserError, match="found no 'valid1' lines"):
        read_log(log, "train", "valid1")


def test_what_is_trained_again_replaces_what_was(tmp_path):
    """A run that was resumed from update 15 with another --log-interval, and one that began anew in
    the same file."""
    lines = [f'{{"epoch": 1, "num_updates": "{update}"}}' for update in (10, 20, 30, 18, 25)]
    for written, expected in ((lines, [10, 18, 25]), ([*lines, lines[0]], [10])):
        (entries,) = read_log(write_lines(tmp_path / "train.log", written), "train_inner")
        assert [entry["num_updates"] for entry in entries] == expected
