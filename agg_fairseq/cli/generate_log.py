"""The translations in what `fairseq-generate` prints."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import UserError, first_line
from ..files import open_file

SENTENCE = re.compile(r"([STHD])-([0-9]{1,18})\t")
SUMMARY = re.compile(r"Translated ([0-9][0-9,]{0,17}) sentences")
CUT = "a truncated log, or a progress bar in it; run fairseq-generate again, with --log-format none"


@dataclass(frozen=True)
class Translations:
    """The sentences of a log, in the order of the test set.

    Args:
        path: of the log.
        sources: the S lines; none with a log that has none.
        references: the T lines.
        tokens: the H lines; of several for a sentence (--nbest), the one of the best score.
        texts: the D lines, likewise: what --tokenizer and --bpe made of the tokens; without these, the same.
    """

    path: str
    sources: list[str]
    references: list[str]
    tokens: list[str]
    texts: list[str]

    @property
    def decoded(self) -> bool:
        """Has fairseq-generate detokenised the texts, and with them the references?"""
        return self.texts != self.tokens


@dataclass
class _Found:
    """What of a log has been read."""

    sources: dict[int, str] = field(default_factory=dict)
    references: dict[int, str] = field(default_factory=dict)
    scored: dict[str, dict[int, list[tuple[float, str]]]] = field(default_factory=lambda: {"H": {}, "D": {}})
    reported: list[int] = field(default_factory=list)
    """The number of sentences, by each summary line."""


def read_translations(path: str | Path) -> Translations:
    """Reads the lines S-id, T-id, H-id and D-id of a log, in any order and among others.

    Raises:
        UserError: there is no such file, it has no such lines, they are cut off or there twice, or sentences between
            0 and the highest id, or of the number that the log itself reports, are missing.
    """
    found = _Found()
    try:
        with open_file(path, encoding="utf-8-sig", newline="\n") as file:
            for count, line in enumerate(file, 1):
                _add(found, line, f"{path}, line {count}")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: unreadable ({first_line(error)}); expected a log of fairseq-generate") from error
    _check_complete(found, path)
    ids = range(len(found.references))
    tokens, texts = ([max(of_kind[i], key=_score)[1] for i in ids] for of_kind in found.scored.values())
    sources, references = ([lines[i] for i in ids if i in lines] for lines in (found.sources, found.references))
    return Translations(str(path), sources, references, tokens, texts)


def _add(found: _Found, line: str, place: str) -> None:
    if not line.endswith("\n"):
        raise UserError(f"{place}: found no end of the line: {CUT}")
    match = SENTENCE.match(line)
    if match is None:
        summary = SUMMARY.search(line)
        if summary:
            found.reported.append(int(summary[1].replace(",", "")))
        return
    kind, index, text = match[1], int(match[2]), line[match.end() :].strip()
    if kind in found.scored:
        found.scored[kind].setdefault(index, []).append(_hypothesis(line[match.end() :], place))
        return
    of_kind = found.sources if kind == "S" else found.references
    if index in of_kind:
        raise UserError(f"{place}: found {kind}-{index} a second time; expected the log of one run over one split")
    of_kind[index] = text


def _hypothesis(rest: str, place: str) -> tuple[float, str]:
    """The score and the text of a line H or D."""
    score, tab, text = rest.partition("\t")
    try:
        return float(score if tab else ""), text.strip()
    except ValueError as error:
        raise UserError(
            f"{place}: found {rest.strip()[:40]!r}; expected a score, a tab and a text, as fairseq-generate prints them"
        ) from error


def _score(hypothesis: tuple[float, str]) -> float:
    return -math.inf if math.isnan(hypothesis[0]) else hypothesis[0]


def _check_complete(found: _Found, path: str | Path) -> None:
    """Sees that no sentence is missing."""
    references, (tokens, texts) = found.references, found.scored.values()
    if not references or not tokens:
        raise UserError(
            f"{path}: found {len(references)} references (T-…) and {len(tokens)} hypotheses (H-…); expected the output "
            "of fairseq-generate, without --quiet, on data that have a target side"
        )
    by_kind = {"S": found.sources or references, "T": references, "H": tokens, "D": texts}
    ids = set().union(*by_kind.values())
    for kind, of_kind in by_kind.items():
        if len(of_kind) < len(ids):
            raise UserError(f"{path}: found no {kind}-{min(ids.difference(of_kind))}: {CUT}")
    uneven = next((index for index in tokens if len(tokens[index]) != len(texts[index])), None)
    if uneven is not None:
        raise UserError(
            f"{path}: found {len(tokens[uneven])} lines H-{uneven}, but {len(texts[uneven])} D-{uneven}: {CUT}"
        )
    _check_contiguous(references, found.reported, path)


def _check_contiguous(references: Collection[int], reported: list[int], path: str | Path) -> None:
    number = len(references)
    missing = next(index for index in itertools.count() if index not in references)
    if missing < number:
        raise UserError(
            f"{path}: found {number} sentences, but none of id {missing}; expected all of the split: fairseq-generate "
            "drops the last, incomplete batch unless given --required-batch-size-multiple 1, too long sentences if "
            "given --skip-invalid-size-inputs-valid-test, and the other shards if given --num-shards"
        )
    if reported and number != sum(reported) and {number} != set(reported):  # shards; or a line that is there twice
        raise UserError(
            f"{path}: found {number} sentences, but the log reports {' + '.join(map(str, reported))}; expected a "
            "whole log of one run"
        )
