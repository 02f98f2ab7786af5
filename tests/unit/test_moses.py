"""Moses' tokens: by hand, and back to the text that people wrote."""

import pytest
import sacremoses

from scripts.data.moses import tokenise


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("en", "Don't stop, Mr. Smith!", "Don &apos;t stop , Mr. Smith !"),
        ("de", "Das ist z.B. „gut“ – so-so.", "Das ist z.B. &quot; gut &quot; - so @-@ so ."),
        ("de", "Der Preis: 3.000,50 €", "Der Preis : 3.000,50 €"),
        ("en", "R&D [1] <b> a|b", "R &amp; D &#91; 1 &#93; &lt; b &gt; a &#124; b"),
        ("en", "a\u00adb c\u200bd\ufeff e\x07f", "a b c d e f"),
        ("en", "tab\tand\u00a0spaces\u3000 and\u2028lines\x85end\x1fs", "tab and spaces and lines end s"),
        ("en", "", ""),
        ("en", " \u00a0 ", ""),
    ],
)
def test_tokens_by_hand(language, text, expected):
    assert tokenise(language, [text]) == [expected]


@pytest.mark.parametrize("language", ["en", "de"])
def test_real_text_can_be_told_from_its_tokens(shared_data, language):
    """All but a few sentences of quotes and of punctuation after a space come back as they were."""
    lines = (shared_data / "multi30k" / f"test.{language}").read_text(encoding="utf-8").splitlines()
    tokens = tokenise(language, lines)
    assert all(line == " ".join(line.split()) for line in tokens)
    detokenise = sacremoses.MosesDetokenizer(language).detokenize
    back = [detokenise(line.split()) for line in tokens]
    assert sum(one == other for one, other in zip(back, map(str.strip, lines), strict=True)) > 0.99 * len(lines)


def test_order_and_number_of_lines():
    assert tokenise("de", ["eins.", "", "zwei."]) == ["eins .", "", "zwei ."]
