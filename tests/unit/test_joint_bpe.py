import pytest

from agg_fairseq.errors import UserError
from scripts.data.joint_bpe import CACHED_WORDS, _codes, encode, learn


@pytest.fixture
def texts(tmp_path):
    (tmp_path / "en").write_text("low lower low\nlow\n\n", encoding="utf-8")
    (tmp_path / "de").write_text("lower löwe\n", encoding="utf-8")
    return [tmp_path / "en", tmp_path / "de"]


@pytest.mark.parametrize(("merges", "expected"), [(2, 2), (100, 5)])
def test_merges_by_hand(texts, tmp_path, merges, expected, capfd):
    """l o is there 5 times, lo w</w> 3 times, all others twice: of these, the last of the alphabet is merged first."""
    learn(texts, merges, tmp_path / "codes")
    codes = (tmp_path / "codes").read_text(encoding="utf-8").splitlines()
    assert codes == ["#version: 0.2", "l o", "lo w</w>", "w e", "we r</w>", "lo wer</w>"][: 1 + expected]
    assert capfd.readouterr().err == ""  # no bar of progress in a log


@pytest.mark.parametrize("text", ["", "a ß\na\n"])
def test_nothing_to_merge(tmp_path, text):
    (tmp_path / "text").write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match="no words of several letters in the training text"):
        learn([tmp_path / "text"], 10, tmp_path / "codes")


def test_pieces_spell_the_words_and_memory_is_bounded(texts, tmp_path):
    learn(texts, 5, tmp_path / "codes")
    lines = ["lower lowe 7", "", "&quot; Grüße @-@ 日本語 🙂 @@b", "x" * 300]
    pieces = encode(tmp_path / "codes", lines)
    assert pieces[:2] == ["lower lo@@ w@@ e 7", ""]
    assert [line.replace("@@ ", "") for line in pieces] == lines
    cache = _codes(tmp_path / "codes").cache
    cache.update((str(number), ("x",)) for number in range(CACHED_WORDS + 1))
    assert encode(tmp_path / "codes", lines) == pieces and len(cache) < 20
