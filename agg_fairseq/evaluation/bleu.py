"""Tokenized BLEU and sacreBLEU of what fairseq-generate printed."""

import re
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from ..data.fairseq_logs import Translations, read_translations
from ..errors import UserError
from ..files import read_lines
from ..metrics import Bleu, corpus_bleu, tokenized_bleu
from ..result import Result

SUBWORD = re.compile(r"@@(?: |$)|▁")
COLUMNS = (
    "bleu", "bleu_brevity_penalty", "bleu_ratio", "sacrebleu", "sacrebleu_brevity_penalty", "sacrebleu_ratio",
    "sentences",
)  # fmt: skip
SUBWORD_SHARE = 0.05  # text is taken for sub-words if more than this share of its lines has some


def bleu(
    logs: Mapping[str, str | Path],
    *,
    reference: str | Path | None = None,
    tokenize: str = "13a",
    moses: str | None = None,
) -> Result:
    """Scores translations of one split that fairseq-generate printed.

    Args:
        logs: outputs of `fairseq-generate`, with joined sub-words, by the names of their rows.
        reference: untokenized target side of the split, a sentence per line; None: no sacreBLEU.
        tokenize: tokenizer of sacreBLEU: zh for Chinese, char or ja-mecab for Japanese, whose words
            13a does not split.
        moses: language of Moses tokens in the hypotheses, such as de, which sacreBLEU then sees
            detokenized.

    Returns:
        Result: a row per log with `bleu` (tokenized) and `sacrebleu`, 0 to 100, for each the other
        parts of `metrics.Bleu`, such as `bleu_brevity_penalty`, and `sentences`. Facts: `reference`.
    """
    translations = {name: read_translations(path) for name, path in logs.items()}
    first, *others = translations.values()
    for log in others:
        if log.references != first.references:
            raise UserError(
                f"{log.path}: found other T-… lines than in {first.path}; expected the same text"
            )
    references = detokenize = None
    if reference is not None:
        references = [line.rstrip() for line in read_lines(reference, "a sentence per line")]
        if len(references) != len(first.references):
            raise UserError(
                f"{reference}: found {len(references)} lines; expected {len(first.references)}, as "
                f"in {first.path}"
            )
    if moses is not None:
        from sacremoses import MosesDetokenizer

        detokenize = MosesDetokenizer(lang=moses).detokenize
    rows, settings = {}, {"sentences": len(first.references)}
    for name, log in translations.items():
        if log.decoded and references is None:
            raise UserError(
                f"{log.path}: found detokenized text (D differs from H); expected --reference, for "
                "sacreBLEU"
            )
        _check_joined(log)
        row = rows[name] = {"path": str(logs[name]), "sentences": len(log.references)}
        row |= {**_columns("bleu", None), **_columns("sacrebleu", None)}
        if not log.decoded:
            score = tokenized_bleu(log.tokens, log.references)
            row |= _columns("bleu", score)
            settings["bleu"] = f"compounds-split,[{score.signature}]"
        if references is not None:
            texts, how = log.texts, "as-generated"
            if detokenize is not None:
                texts = [detokenize(line.split()) for line in texts]
                how = f"sacremoses-{metadata.version('sacremoses')}-{moses}"
            score = corpus_bleu(texts, references, tokenize=tokenize)
            row |= _columns("sacrebleu", score)
            settings["sacrebleu"] = f"{how},[{score.signature}]"
    facts = {"reference": None if reference is None else str(reference)}
    return Result(rows, dict.fromkeys(COLUMNS, [""]), settings, facts)


def _check_joined(log: Translations) -> None:
    for lines in [log.texts] if log.decoded else [log.texts, log.references]:
        having = list(filter(SUBWORD.search, lines))
        if len(having) > SUBWORD_SHARE * len(lines):
            raise UserError(
                f"{log.path}: found sub-words, {having[0][:40]!r}; run fairseq-generate with "
                "--remove-bpe, or --remove-bpe sentencepiece"
            )


def _columns(measure: str, score: Bleu | None) -> dict[str, Any]:
    """A score and its parts by the names of columns; without a score None."""
    columns = {}
    for part in Bleu._fields:
        name = measure if part == "score" else f"{measure}_{part}"
        columns[name] = score and getattr(score, part)
    return columns
