import io

import pytest

from scripts.data.plain_text import plain_lines, sgm_segments


def test_lines_of_plain_text():
    text = "\ufeffone\r\n\n two\u2028three\x0bfour\rfive \nnaïve\u00a0x\nend"
    expected = ["one", "", "two three four five", "naïve\u00a0x", "end"]
    assert list(plain_lines(io.BytesIO(text.encode()))) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            '<srcset setid="newstest2014"><doc docid="1">\n<p>\n<seg id="1">Orlando Bloom &amp; '
            "Miranda Kerr</seg>\n"
            '<seg id="2"></seg>\n</p><SEG ID="3"> Tom said: &quot;&lt;i&gt; isn&apos;t\n '
            "text&quot; </SEG></doc>",
            ["Orlando Bloom & Miranda Kerr", "", 'Tom said: "<i> isn\'t text"'],
        ),
        ('<segment id="1">no</segment><seg id="1">R&D, AT&T</seg>', ["R&D, AT&T"]),
        ('<seg id="1">&amp;lt; &sect; &copyright a > b</seg>', ["&lt; &sect; &copyright a > b"]),
    ],
)
def test_sgm_segments(text, expected):
    assert list(sgm_segments(io.BytesIO(text.encode()))) == expected
