import pytest

from scripts.data.moses import is_clean, tokenize


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("en", "Don't stop, Mr. Smith!", "Don &apos;t stop , Mr. Smith !"),
        ("de", "Das ist z.B. „gut“ – so-so.", "Das ist z.B. &quot; gut &quot; - so @-@ so ."),
        ("de", "Der Preis: 3.000,50 €", "Der Preis : 3.000,50 €"),
        ("en", "R&D [1] <b> a|b", "R &amp; D &#91; 1 &#93; &lt; b &gt; a &#124; b"),
        ("en", "a\u00adb c\u200bd\ufeff e\x07f", "a b c d e f"),
        ("en", "tab\tand\u00a0spaces\u3000 and\u2028lines\x85end\x1fs", "tab and spaces and lines end s"),
        ("en", " \u00a0 ", ""),
    ],
)
def test_tokens_by_hand(language, text, expected):
    assert tokenize(language, [text, ""]) == [expected, ""]


def test_punctuation_of_the_test_split_is_not_normalized():
    """As in the scripts of fairseq and of Yu et al. (2022): only ’ becomes ' before the tokenizer."""
    text = "Das ist „gut“ – wie geht’s?"
    assert tokenize("de", [text], normalize=False) == ["Das ist „ gut “ – wie geht &apos; s ?"]
    assert tokenize("de", [text]) == ["Das ist &quot; gut &quot; - wie geht &apos; s ?"]


def test_lengths_of_clean_pairs():
    """From 1 to 250 tokens, and at most one and a half times those of the other side, both ends included."""
    clean = [(1, 1), (250, 250), (2, 3), (100, 150), (167, 250)]
    unclean = [(0, 1), (0, 0), (250, 251), (2, 4), (100, 151), (166, 250)]
    for lengths in (*clean, *unclean):
        for source, target in (lengths, lengths[::-1]):
            assert is_clean(" ".join("a" * source), "  ".join("b" * target)) is (lengths in clean), (source, target)
