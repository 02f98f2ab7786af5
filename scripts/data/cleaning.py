"""Which sentence pairs a translation model is trained on, as Moses' clean-corpus-n.perl chooses them."""

from __future__ import annotations

SHORTEST, LONGEST = 1, 250
"""Tokens of a sentence; those of fairseq's script for WMT (`clean-corpus-n.perl -ratio 1.5 … 1 250`)."""
RATIO = 1.5


def is_clean(source: str, target: str) -> bool:
    """Whether both sentences have from 1 to 250 tokens, and neither more than 1.5 times those of the other."""
    shorter, longer = sorted((len(source.split()), len(target.split())))
    return shorter >= SHORTEST and longer <= LONGEST and longer <= RATIO * shorter
