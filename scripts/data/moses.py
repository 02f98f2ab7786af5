"""Moses' tokens and choice of sentence pairs, as fairseq's script for WMT and that of Yu et al. (2022) have them."""

from __future__ import annotations

from functools import cache
from typing import Any

SHORTEST, LONGEST, RATIO = 1, 250, 1.5
"""Lengths of clean sentences in tokens, from fairseq's script for WMT (`clean-corpus-n.perl -ratio 1.5 … 1 250`)."""


def tokenize(language: str, lines: list[str], normalize: bool = True) -> list[str]:
    """Normalizes punctuation and tokenizes as Moses does for a language, `en` or `de`, by sacremoses.

    Without `normalize`, punctuation stays as it is, except that ’ becomes ': the test split of fairseq's script for WMT
    and of that of Yu et al. (2022). A normalized reference would be easier to match.

    Control and format characters become spaces, hyphens between letters or digits become tokens (`@-@`, as by
    `tokenizer.perl -a`), and characters with a meaning to Moses are escaped (`&quot;`), as in fairseq's script for WMT.
    `agg-fairseq bleu --moses de` undoes the last two.
    """
    control, normalizer, tokenizer = _moses(language)
    texts = [normalizer.normalize(line) if normalize else line.replace("’", "'") for line in lines]
    return [
        tokenizer.tokenize(control.sub(" ", text), aggressive_dash_splits=True, escape=True, return_str=True)
        for text in texts
    ]


@cache
def _moses(language: str) -> tuple[Any, Any, Any]:
    """What Moses' remove-non-printing-char.perl removes, its normalizer and its tokenizer; once in each process."""
    import regex
    import sacremoses

    return regex.compile(r"\p{C}"), sacremoses.MosesPunctNormalizer(language), sacremoses.MosesTokenizer(language)


def is_clean(source: str, target: str) -> bool:
    """Whether both sentences have 1 to 250 tokens, and neither more than 1.5 times those of the other."""
    shorter, longer = sorted((len(source.split()), len(target.split())))
    return shorter >= SHORTEST and longer <= LONGEST and longer <= RATIO * shorter
