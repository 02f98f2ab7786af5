"""Moses' normalisation of punctuation and tokenisation, by sacremoses, as fairseq's script for WMT uses Moses' own.

That is: control and format characters become spaces, hyphens between letters or digits become tokens (`@-@`, as by
`tokenizer.perl -a`), and what means something to Moses is escaped (`&quot;`). `agg-fairseq bleu --moses de` undoes the
last two.
"""

from __future__ import annotations

from functools import cache

import regex
import sacremoses

CONTROL = regex.compile(r"\p{C}")
"""What Moses' remove-non-printing-char.perl removes."""


def tokenise(language: str, lines: list[str]) -> list[str]:
    """The tokens of lines of plain text, separated by single spaces.

    Args:
        language: the abbreviations and apostrophes of which are kept: `en`, `de`.
        lines: as people write them.
    """
    normaliser, tokeniser = _tools(language)
    return [
        tokeniser.tokenize(
            CONTROL.sub(" ", normaliser.normalize(line)), aggressive_dash_splits=True, escape=True, return_str=True
        )
        for line in lines
    ]


@cache
def _tools(language: str) -> tuple[sacremoses.MosesPunctNormalizer, sacremoses.MosesTokenizer]:
    return sacremoses.MosesPunctNormalizer(language), sacremoses.MosesTokenizer(language)
