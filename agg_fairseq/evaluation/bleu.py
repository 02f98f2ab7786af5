"""Tokenized BLEU and sacreBLEU of what fairseq-generate printed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from tqdm import tqdm

from .. import __version__
from ..errors import UserError, first_line
from ..files import open_file
from ..metrics import Bleu, corpus_bleu, tokenized_bleu
from ..result import Column, Result, Value
from .generate_log import Translations, read_translations

SUBWORD = re.compile(r"@@(?: |$)|▁")
TOKENIZED = re.compile(r"(?:^| )[.,](?: |$)| @-@ |&(?:apos|quot|amp|lt|gt|#124|#91|#93);")
SPACED = re.compile(rf"{TOKENIZED.pattern}| [?!;:)](?: |$)|(?:^| )\( | (?:n't|'s)(?: |$)")
"""Also what plain text has at times, such as French (`Quoi ?`) and Dutch (`'s avonds`)."""
PLAIN = re.compile(r"\w,(?: |$)|\w\.$")
UNLISTED = ("ja", "ko")
"""Languages that sacremoses knows by their script, without the abbreviations that it has of the others."""
LOOKS_SHARE = 0.05
"""Text is taken for what it looks like in more than this share of its lines: plain text has a stray ` ,` too."""


def bleu(logs: Mapping[str, str | Path], *, reference: str | Path | None = None, moses: str | None = None) -> Result:
    """Scores translations of one split: BLEU of the tokens, and sacreBLEU of plain text.

    BLEU is that of the tokens in the hypotheses (H) and references (T) of a log, with compounds split, as fairseq's
    compound_split_bleu.sh computes it; it compares only models whose text was tokenized in the same way. sacreBLEU is
    that of the detokenized hypotheses (D) against `reference`. Of several hypotheses for a sentence, the one with the
    best score counts.

    Args:
        logs: outputs of `fairseq-generate`, by the names of their rows.
        reference: the untokenized target side of the split, a sentence per line; None leaves sacreBLEU out.
        moses: language code of Moses tokens in the hypotheses, which are then detokenized; None takes the hypotheses as
            they are.

    Returns:
        Result: a row per log with both scores (0 to 100), their brevity penalties and the ratios of the lengths of
        hypotheses and references. Details: `reference`; and `files`, for each `name`, `path`, `sentences`, and `bleu`
        and `sacrebleu` with the attributes of `metrics.Bleu`, None where a score is undefined.

    Raises:
        UserError: a log or the reference cannot be read or lacks sentences; the logs are of different splits; the text
            has sub-words, or looks tokenized where plain text is needed or the other way around; sacrebleu or
            sacremoses is missing.

    Reference: Vaswani et al. (2017); Post (2018).
    """
    if moses is not None:
        if reference is None:
            raise UserError("--moses: found no --reference; expected one, since only sacreBLEU needs plain text")
        supported = {*_sacremoses().corpus.NonbreakingPrefixes().available_langs.values(), *UNLISTED}
        if moses not in supported:
            raise UserError(
                f"--moses: found {moses!r}; expected a language of sacremoses: {', '.join(sorted(supported))}"
            )
    translations = {name: read_translations(path) for name, path in logs.items()}
    first, *others = translations.values()
    for log in others:
        _check_same_split(log, first)
    references = None if reference is None else read_reference(reference, first)
    scores: dict[str, tuple[Bleu | None, Bleu | None]] = {}
    for name, log in tqdm(translations.items(), desc="scoring", unit="log", disable=None, leave=False):
        scores[name] = _score(log, references, moses)

    rows: dict[str | tuple[str, ...], list[Value]] = {}
    for name, both in scores.items():
        parts = [(one.score, one.brevity_penalty, one.ratio) if one else (None, None, None) for one in both]
        rows[name] = [*parts[0], *parts[1], len(translations[name].references)]
    signature = [f"sentences:{len(first.references)}"]
    of_tokens, of_text = (next(filter(None, column), None) for column in zip(*scores.values(), strict=True))
    if of_tokens:
        signature.append(f"bleu:compounds-split,[{of_tokens.signature}]")
    if of_text:
        text = "as-generated" if moses is None else f"sacremoses-{metadata.version('sacremoses')}-{moses}"
        signature.append(f"sacrebleu:{text},[{of_text.signature}]")
    files = [
        {
            "name": name,
            "path": str(logs[name]),
            "sentences": len(translations[name].references),
            "bleu": of_tokens and asdict(of_tokens),
            "sacrebleu": of_text and asdict(of_text),
        }
        for name, (of_tokens, of_text) in scores.items()
    ]
    return Result(
        columns=[
            *(Column("BLEU"), Column("BP", digits=3), Column("ratio", digits=3)),
            *(Column("sacreBLEU"), Column("sacreBLEU BP", digits=3), Column("sacreBLEU ratio", digits=3)),
            Column("sentences", digits=0),
        ],
        rows=rows,
        signature="|".join([*signature, f"version:{__version__}"]),
        details={"reference": None if reference is None else str(reference), "files": files},
    )


def _check_same_split(log: Translations, first: Translations) -> None:
    """Scores are compared only if they are of the same sentences, and BLEU only if the tokens are the same."""
    if len(log.references) != len(first.references):
        raise UserError(
            f"{log.path}: found {len(log.references)} sentences; expected the {len(first.references)} of "
            f"{first.path}; translate the same split"
        )
    pairs = enumerate(zip(log.references, first.references, strict=True))
    differing = next((index for index, (one, other) in pairs if one != other), None)
    if differing is not None:
        raise UserError(
            f"{log.path}: found another reference T-{differing} than in {first.path}; expected the same split, "
            "tokenized in the same way; score the two by themselves"
        )


def read_reference(path: str | Path, log: Translations) -> list[str]:
    """The lines of a plain text, as many as the log has sentences.

    Raises:
        UserError: the file cannot be read, has another number of lines or an empty one, or looks tokenized.
    """
    try:
        with open_file(path, encoding="utf-8-sig", newline="\n") as file:  # sig: without a byte-order mark
            lines = [line.rstrip() for line in file]
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: unreadable ({first_line(error)}); expected a sentence per line") from error
    if len(lines) != len(log.references):
        raise UserError(
            f"{path}: found {len(lines)} lines; expected {len(log.references)}, one per sentence of {log.path}, unless "
            "fairseq-generate dropped some: give it --required-batch-size-multiple 1"
        )
    if "" in lines:
        raise UserError(f"{path}: found nothing on line {lines.index('') + 1}; expected a sentence on each")
    tokenized = _tokenized(lines)
    if tokenized is not None:
        raise UserError(
            f"{path}: found {tokenized}, tokenized text; expected the plain text that sacreBLEU is "
            "defined on, as it was before the data were tokenized"
        )
    return lines


def _score(log: Translations, references: list[str] | None, language: str | None) -> tuple[Bleu | None, Bleu | None]:
    """BLEU of the tokens and sacreBLEU, each where it is defined."""
    if log.decoded and references is None:
        raise UserError(
            f"{log.path}: found text that fairseq-generate has detokenized (D differs from H); expected --reference "
            "for sacreBLEU, or, for tokenized BLEU, a log without --tokenizer and --bpe"
        )
    for lines in [log.texts] if log.decoded else [log.texts, log.references]:
        if _share(SUBWORD, lines) > LOOKS_SHARE:
            raise UserError(
                f"{log.path}: found sub-words, {_example(SUBWORD, lines)}; expected words; pass --remove-bpe, or "
                "--remove-bpe sentencepiece, to fairseq-generate"
            )
    try:
        of_tokens = None if log.decoded else tokenized_bleu(log.tokens, log.references)
        return of_tokens, None if references is None else corpus_bleu(_plain(log, language), references)
    except ImportError as error:
        raise UserError("bleu: sacrebleu is missing; pip install '.[eval]'") from error


def _plain(log: Translations, language: str | None) -> list[str]:
    """The hypotheses as the plain text that sacreBLEU is defined on."""
    if language is None:
        tokenized = _tokenized(log.texts)
        if tokenized is not None:
            raise UserError(
                f"{log.path}: found {tokenized}, tokenized text; expected plain text for "
                "sacreBLEU; pass --moses LANG if these are Moses tokens"
            )
        return log.texts
    if _share(PLAIN, log.texts) > _share(SPACED, log.texts):
        raise UserError(
            f"{log.path}: found {_example(PLAIN, log.texts)}, plain text; expected Moses tokens; leave out --moses"
        )
    detokenizer = _sacremoses().MosesDetokenizer(lang=language)
    return [detokenizer.detokenize(line.split()) for line in log.texts]


def _sacremoses() -> Any:
    try:
        import sacremoses.corpus
    except ImportError as error:
        raise UserError("--moses: sacremoses is missing; pip install '.[eval]'") from error
    return sacremoses


def _tokenized(lines: Sequence[str]) -> str | None:
    """An example of why text looks tokenized, by what plain text never has or by what it seldom has; else None."""
    if _share(TOKENIZED, lines) > LOOKS_SHARE:
        return _example(TOKENIZED, lines)
    return _example(SPACED, lines) if _share(SPACED, lines) > max(LOOKS_SHARE, _share(PLAIN, lines)) else None


def _share(looks: re.Pattern[str], lines: Sequence[str]) -> float:
    """The share of lines in which a pattern is found."""
    return sum(looks.search(line) is not None for line in lines) / len(lines)


def _example(looks: re.Pattern[str], lines: Sequence[str]) -> str:
    """The place where a pattern is found first, with the text around it."""
    match = next(filter(None, map(looks.search, lines)))
    return repr(match.string[max(0, match.start() - 20) : match.end() + 10])
