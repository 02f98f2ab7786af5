"""Joint sub-words: merges by hand, and the same text from both libraries."""

import random
import sys

import pytest

from agg_fairseq.errors import UserError
from scripts.data.joint_bpe import (
    CACHED_WORDS,
    _subword_nmt,
    apply_fastbpe,
    apply_subword_nmt,
    count_words,
    learn,
    write_fastbpe,
)

ODD = [
    "",
    "a",
    "&quot; Grüße &quot; @-@ 3.000 € 日本語 🙂 ﬁ",
    "naïve nai\u0308ve ß ẞ",
    "@@ @ a@@ @@b </w> low</w>",
    "x" * 300,
    "#version: 0.2",
]


@pytest.fixture
def written(tmp_path):
    """Texts of two languages, and where codes learned on both go."""
    (tmp_path / "en").write_text("low lower low\nlow\n\n", encoding="utf-8")
    (tmp_path / "de").write_text("lower löwe\n", encoding="utf-8")
    return tmp_path


def test_words_of_both_sides_are_counted(written):
    assert count_words([written / "en", written / "de"]) == {"low": 3, "lower": 2, "löwe": 1}


def test_merges_by_hand(written):
    """l o is there 5 times, lo w</w> 3 times, all others twice: of these, the last of the alphabet is merged first."""
    learn(count_words([written / "en", written / "de"]), 100, written / "codes")
    codes = (written / "codes").read_text(encoding="utf-8").splitlines()
    assert codes == ["#version: 0.2", "l o", "lo w</w>", "w e", "we r</w>", "lo wer</w>"]


def test_number_of_merges(written):
    learn(count_words([written / "en", written / "de"]), 2, written / "codes")
    assert (written / "codes").read_text(encoding="utf-8") == "#version: 0.2\nl o\nlo w</w>\n"


@pytest.mark.parametrize("counts", [{}, {"a": 5, "ß": 2}])
def test_nothing_to_merge(tmp_path, counts):
    with pytest.raises(UserError, match="no words of several letters in the training text"):
        learn(counts, 10, tmp_path / "codes")


def test_codes_of_fastbpe(tmp_path):
    (tmp_path / "codes").write_text("#version: 0.2\nl o\nlo w</w>\nl o\n", encoding="utf-8")
    write_fastbpe(tmp_path / "codes", tmp_path / "codes.fastbpe")
    assert (tmp_path / "codes.fastbpe").read_text(encoding="utf-8") == "l o 0\nlo w</w> 0\n"


def test_both_libraries_agree(tmp_path, shared_data):
    """On real text, on text that the merges were not learned on, and on odd text."""
    files = [shared_data / "multi30k" / f"valid.{language}" for language in ("en", "de")]
    learn(count_words(files), 700, tmp_path / "codes")
    write_fastbpe(tmp_path / "codes", tmp_path / "codes.fastbpe")
    test = (shared_data / "multi30k" / "test.de").read_text(encoding="utf-8").splitlines()
    real = [line for path in files for line in path.read_text(encoding="utf-8").splitlines()]
    letters = sorted(set("".join(real)) - {" "})
    made = ["".join(random.choices(letters, k=random.randint(1, 20))) for _ in range(500)]
    lines = [" ".join(line.split()) for line in [*real, *test, *made, *ODD]]
    pieces = apply_fastbpe(str(tmp_path / "codes.fastbpe"), lines)
    assert pieces == apply_subword_nmt(str(tmp_path / "codes"), lines)
    assert [" ".join(line.split()) for line in lines[:3000]] == [line.replace("@@ ", "") for line in pieces[:3000]]
    assert any("@@ " in line for line in pieces) and any("@@" not in line for line in pieces)


def test_memory_of_subword_nmt_is_bounded(written):
    learn(count_words([written / "en", written / "de"]), 5, written / "codes")
    codes = str(written / "codes")
    cache = _subword_nmt(codes).cache
    cache.update((str(number), ("x",)) for number in range(CACHED_WORDS + 1))
    assert apply_subword_nmt(codes, ["lower lowe 7"]) == ["lower lo@@ w@@ e 7"] and len(cache) <= 3


def test_messages(written, capfd):
    """Neither a bar of progress in a log, nor a line of fastBPE in each process; errors are still shown after it."""
    learn(count_words([written / "en", written / "de"]), 5, written / "codes")
    write_fastbpe(written / "codes", written / "codes.fastbpe")
    assert apply_fastbpe(str(written / "codes.fastbpe"), ["lower"]) == ["lower"]
    print("shown", file=sys.stderr)
    assert capfd.readouterr().err == "shown\n"
