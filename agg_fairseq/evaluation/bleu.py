"""Tokenized BLEU and sacreBLEU of what fairseq-generate printed."""

import re
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from ..columns import TRANSLATIONS
from ..data.fairseq_logs import Translations, read_translations
from ..errors import UserError
from ..files import read_lines
from ..metrics import Bleu, corpus_bleu, tokenized_bleu
from ..metrics.bleu import COMPOUND
from ..result import Result

SUBWORD = re.compile(r"@@(?: |$)|▁")
SAME_TEXT = 10  # the least sacreBLEU of a text with its tokens
PLAIN = re.compile(r"\w[.?!。？！]$")  # the end of a sentence that was never tokenized
PLAIN_SHARE = 0.2  # of lines, above which none was
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
        moses: language of Moses tokens in the log, such as de, which sacreBLEU then sees
            detokenized. Tokenized BLEU splits compounds if it, or else the log, says de.
    """
    translations = {name: read_translations(path) for name, path in logs.items()}
    first, *others = translations.values()
    for log in others:
        if log.references != first.references:
            raise UserError(
                f"{log.path}: found other T-… lines than in {first.path}; expected the same text"
            )
    references = None
    if reference is not None:
        references = [line.rstrip() for line in read_lines(reference, "a sentence per line")]
        if len(references) != len(first.references):
            raise UserError(
                f"{reference}: found {len(references)} lines; expected {len(first.references)}, as "
                f"in {first.path}, which lacks a batch if fairseq-generate ran without "
                "--required-batch-size-multiple 1"
            )
    rows, settings = {}, {"sentences": len(first.references)}
    language = moses or next((log.language for log in translations.values() if log.language), None)
    for name, log in translations.items():
        _check(log)
        plain_lines = list(filter(PLAIN.search, log.references if moses is None else ()))
        is_plain = log.decoded or len(plain_lines) > PLAIN_SHARE * len(log.references)
        tokenized = plain = None
        if is_plain and references is None:
            raise UserError(
                f"{log.path}: found text that is detokenized (D differs from H) or never was "
                f"tokenized, {log.references[0][:40]!r}; expected --reference, for sacreBLEU"
            )
        if not is_plain:
            if language is None and any(map(COMPOUND.search, (*log.tokens, *log.references))):
                raise UserError(
                    f"{log.path}: found no line that names the target language, and compounds, "
                    "which are split in German; run PYTHONUNBUFFERED=1 fairseq-generate … > LOG "
                    "2>&1, or give --moses LANGUAGE"
                )
            is_german = language == "de"
            tokenized = tokenized_bleu(log.tokens, log.references, split=is_german)
            settings["bleu"] = f"{'compounds-split,' * is_german}[{tokenized.signature}]"
        if references is not None:
            texts, own, how = log.texts, log.references, "as-generated"
            if moses is not None:
                texts, own = _detokenized(texts, moses), _detokenized(own, moses)
                how = f"sacremoses-{metadata.version('sacremoses')}-{moses}"
            if log is first:
                _check_reference(reference, log, corpus_bleu(own, references, tokenize=tokenize))
            plain = corpus_bleu(texts, references, tokenize=tokenize)
            settings["sacrebleu"] = f"{how},[{plain.signature}]"
        rows[name] = {
            "path": str(logs[name]),
            "sentences": len(log.references),
            **_columns("bleu", tokenized),
            **_columns("sacrebleu", plain),
        }
    facts = {"reference": reference and str(reference)}
    return Result(rows, TRANSLATIONS, settings, facts)


def _check(log: Translations) -> None:
    """Raises UserError for sub-words, and for references in the place of translations."""
    for lines in [log.texts] if log.decoded else [log.texts, log.references]:
        having = list(filter(SUBWORD.search, lines))
        if len(having) > SUBWORD_SHARE * len(lines):
            raise UserError(
                f"{log.path}: found sub-words, {having[0][:40]!r}; run fairseq-generate with "
                "--remove-bpe, or --remove-bpe sentencepiece"
            )
    unescaped = [line.replace("<<unk>>", "<unk>") for line in log.references]
    if log.texts == unescaped != log.references:
        raise UserError(
            f"{log.path}: found the T-… lines in the H-… lines, as of --score-reference; "
            "expected translations"
        )


def _check_reference(reference: str | Path | None, log: Translations, same: Bleu) -> None:
    """Raises UserError for another text than that of a log, by the score of its T lines, if these have
    4-grams on average."""
    if same.score < SAME_TEXT and same.hypothesis_length >= 4 * len(log.references):
        raise UserError(
            f"{reference}: found a sacreBLEU of {same.score:.2f} with the T-… lines of {log.path}; "
            "expected the target side of the split, and --tokenize for a language without spaces"
        )


def _detokenized(lines: list[str], language: str) -> list[str]:
    """Moses tokens as plain text."""
    from sacremoses import MosesDetokenizer

    detokenizer = MosesDetokenizer(lang=language)
    return [detokenizer.detokenize(line.split()) for line in lines]


def _columns(measure: str, score: Bleu | None) -> dict[str, Any]:
    """A score and its parts by the names of columns; None without a score."""
    columns = {}
    for part in Bleu._fields:
        name = measure if part == "score" else f"{measure}_{part}"
        columns[name] = score and getattr(score, part)
    return columns
