"""Words, sub-words and Moses' tokens of lines, against the libraries that defined them."""

import sys

import pytest

from scripts.data import encode
from scripts.data.learn_sentencepiece import learn
from tests.conftest import documentation, sentence_pairs, write_lines
from tests.wikitext_sample import sample_text

LINES = sample_text(0).splitlines()
ODD = [
    "  two  spaces ",
    "戦場のヴァルキュリア 3 : <unk>",
    "naïve\u00a0café \u3000 x",
    "🙂 \u200b ' 's don't",
]


def test_words_are_those_of_fairseq():
    assert list(encode.encode("words", "", ["a\rb", "", " c\u2028 d "])) == ["a b", "", "c d"]


def test_ids_of_gpt2_are_those_of_fairseq(gpt2_bpe):
    from fairseq.data.encoders.gpt2_bpe_utils import get_encoder

    bpe = get_encoder(str(gpt2_bpe / "encoder.json"), str(gpt2_bpe / "vocab.bpe"))
    lines = [*documentation()[:300], *LINES, *ODD]
    encoded = list(encode.encode("gpt2", str(gpt2_bpe), lines))
    assert encoded == [" ".join(map(str, bpe.encode(line.strip()))) for line in lines]


def test_pieces_of_sentencepiece_spell_the_text_with_every_character_of_it(tmp_path):
    """The brackets of <unk> too, which sentencepiece would skip; learned also from a line that it
    would leave out."""
    write_lines(tmp_path / "text", [*LINES, "abcdef " * 160_000])  # above 1 MiB
    learn(tmp_path / "text", 150, tmp_path / "sentencepiece.model")
    more = ["a\u00a0role\u3000@-@", "", "abcdef"]
    encoded = list(encode.encode("sentencepiece", str(tmp_path), [*LINES, *more]))
    for line, text in zip(encoded, [*LINES, "a role @-@", "", "abcdef"], strict=True):
        assert "".join(line.split()).replace("▁", " ").strip() == text.strip()
    assert len({*" ".join(encoded).split()}) <= 150
    assert encoded[-1] == "▁abcdef"


@pytest.fixture(scope="module")
def codes(tmp_path_factory):
    """Codes that subword-nmt learns on both languages, and Moses' tokens."""
    from subword_nmt.learn_bpe import learn_bpe

    folder, tokens = tmp_path_factory.mktemp("codes"), []
    for language, lines in zip(("en", "de"), sentence_pairs(300), strict=True):
        tokens += encode.encode("moses", language, lines)
    with open(folder / "codes", "w", encoding="utf-8") as file:
        learn_bpe(tokens, file, 300)
    return folder, tokens


@pytest.mark.parametrize("has_fastbpe", [True, False])
def test_pieces_of_codes_are_those_of_subword_nmt(has_fastbpe, codes, monkeypatch):
    from subword_nmt.apply_bpe import BPE

    if has_fastbpe:
        pytest.importorskip("fastBPE")
    else:
        monkeypatch.setitem(sys.modules, "fastBPE", None)
    folder, tokens = codes
    encode.KINDS["bpe"].cache_clear()
    with open(folder / "codes", encoding="utf-8") as file:
        bpe = BPE(file)
    tokens = [*tokens, "&quot; Grüße @-@ 日本語 🙂 @@b", "x" * 300, ""]
    assert list(encode.encode("bpe", str(folder), tokens)) == [bpe.segment(line) for line in tokens]
    encode.KINDS["bpe"].cache_clear()


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("de", "Das ist z.B. „gut“ – so-so.", "Das ist z.B. &quot; gut &quot; - so @-@ so ."),
        ("en", "R&D: don't", "R &amp; D : don &apos;t"),
        ("en", "a\u00adb c\u200bd\ufeff e\x07f", "a b c d e f"),
        ("en", "tab\tand\u00a0spaces\u3000 and\u2028lines\x85end\x1fs", "tab and spaces and lines end s"),
        # where sacremoses alone differs from Moses' scripts
        ("de", "„Gut“, sagte er, „so z. B. so.“", "&quot; Gut &quot; , sagte er , &quot; so z. B. so &quot; ."),
        ("de", "ein Bus der Linie A.", "ein Bus der Linie A ."),
        ("en", "in the U.S. by C U B S.", "in the U.S. by C U B S ."),
        ("en", "the dogs’ bone", "the dogs &quot; bone"),
        ("de", "So geht’s weiter...", "So geht &apos; s weiter ..."),
    ],
)  # fmt: skip
def test_tokens_of_moses(language, text, expected):
    """Printed by normalize-punctuation.perl, remove-non-printing-char.perl and tokenizer.perl -a
    (of 2025)."""
    assert list(encode.encode("moses", language, [text, ""])) == [expected, ""]


def test_punctuation_of_the_test_split_is_not_normalized():
    """As in the scripts of fairseq and of Yu et al. (2022): only ’ becomes ' before the
    tokenizer."""
    (line,) = encode.encode("moses-as-it-is", "de", ["Das ist „gut“ – wie geht’s der Linie A.?"])
    assert line == "Das ist „ gut “ – wie geht &apos; s der Linie A. ?"
