"""WMT's SGML, as far as it is regular."""

import pytest

from scripts.data.sgm import segments

REAL = """<srcset setid="newstest2014" srclang="any">
<doc sysid="ref" docid="abcnews.go.com/1" genre="news" origlang="en">
<p>
<seg id="1">Orlando Bloom &amp; Miranda Kerr</seg>
<seg id="2"></seg>
</p>
<p>
<seg id="3"> Tom said: &quot;&lt;i&gt; isn&apos;t
 text&quot; </seg>
</p></doc></srcset>
"""


def test_segments():
    """In order, one to a line, the empty one kept; entities are characters, and those of text are kept."""
    assert segments(REAL) == ["Orlando Bloom & Miranda Kerr", "", 'Tom said: "<i> isn\'t text"']


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("<seg>a</seg><seg id='2'>b</seg>", ["a", "b"]),
        ('<SEG ID="1">a</SEG>', ["a"]),
        ('<segment id="1">no</segment><seg id="1">R&D, AT&T</seg>', ["R&D, AT&T"]),
        ('<seg id="1">&amp;lt; &sect; &copyright</seg>', ["&lt; &sect; &copyright"]),
        ('<seg id="1">a > b</seg>', ["a > b"]),
        ('<seg id="1">never closed', []),
    ],
)
def test_irregular_segments(text, expected):
    assert segments(text) == expected
