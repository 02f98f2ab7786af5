"""The sentences of an SGML file of the WMT shared tasks (`newstest2014-deen-src.en.sgm`)."""

from __future__ import annotations

import re
from xml.sax.saxutils import unescape

SEGMENT = re.compile(r"<seg\b[^>]*>(.*?)</seg>", re.DOTALL | re.IGNORECASE)
ENTITIES = {"&quot;": '"', "&apos;": "'"}
"""Beside &lt; &gt; &amp;. Of others, and of a bare &, the files are free, and it is left as it is."""


def segments(text: str) -> list[str]:
    """The text of every segment, in order, on one line, entities as the characters they stand for; it may be empty."""
    return [" ".join(unescape(found, ENTITIES).split()) for found in SEGMENT.findall(text)]
