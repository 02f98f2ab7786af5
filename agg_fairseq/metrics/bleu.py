"""BLEU of a corpus, by sacrebleu: of plain text, and of tokens, with compounds split or not."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

COMPOUND = re.compile(r"(\S)-(\S)", re.ASCII)  # ASCII: what is a space to fairseq's Perl script


class Bleu(NamedTuple):
    """A score and its parts."""

    score: float  # 0 to 100
    precisions: list[float]  # of n-grams in percent, for n = 1 to 4
    brevity_penalty: float  # 0 to 1
    ratio: float  # of the lengths of hypotheses and references
    hypothesis_length: int  # in tokens
    reference_length: int
    signature: str  # sacrebleu's own, of all its settings


def corpus_bleu(hypotheses: Sequence[str], references: Sequence[str], **options: Any) -> Bleu:
    """BLEU as sacrebleu computes it, with one reference per sentence.

    Args:
        hypotheses: plain text, a sentence each.
        references: as many.
        options: of `sacrebleu.metrics.BLEU`, such as `tokenize`; its defaults are those to report.

    Reference: Papineni et al. (2002); Post (2018).
    """
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU(**options)
    bleu = metric.corpus_score(hypotheses, [references])
    parts = (bleu.score, bleu.precisions, bleu.bp, bleu.ratio, bleu.sys_len, bleu.ref_len)
    return Bleu(*parts, str(metric.get_signature()))


def tokenized_bleu(
    hypotheses: Sequence[str], references: Sequence[str], *, split: bool = True
) -> Bleu:
    """BLEU of lines of tokens, separated by spaces, with compounds split, as by fairseq's
    compound_split_bleu.sh for German; without `split`, as by fairseq-generate. An empty line counts
    as one token, as in fairseq-score.

    Reference: Vaswani et al. (2017).
    """
    sides = []
    for lines in (hypotheses, references):
        sides.append([(split_compounds(line) if split else line) or "</s>" for line in lines])
    return corpus_bleu(*sides, tokenize="none", smooth_method="none", force=True)


def split_compounds(line: str) -> str:
    """Splits compounds as fairseq does; of `a-b-c`, only at the first hyphen.

    Examples:
        >>> split_compounds("Text-zu-Text")
        'Text ##AT##-##AT## zu ##AT##-##AT## Text'
    """
    return COMPOUND.sub(r"\1 ##AT##-##AT## \2", line)
