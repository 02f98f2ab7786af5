"""The translations in what `fairseq-generate` prints."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

from ..errors import UserError, first_line
from ..files import open_file

SENTENCE = re.compile(r"([STHD])-([0-9]{1,18})\t")
CUT = "a truncated log, several in one, or a progress bar in it; run fairseq-generate with --log-format none"


@dataclass(frozen=True)
class Translations:
    """The sentences of a log, in the order of the test set.

    Args:
        path: of the log.
        sources: the S lines; none with a log that has none.
        references: the T lines.
        tokens: the H lines; of several for a sentence (--nbest), the one with the best score.
        texts: the D lines, likewise: what --tokenizer and --bpe made of the tokens; without these, the same.
    """

    path: str
    sources: list[str]
    references: list[str]
    tokens: list[str]
    texts: list[str]

    @property
    def decoded(self) -> bool:
        """Has fairseq-generate detokenized the texts, and with them the references?"""
        return self.texts != self.tokens


def read_translations(path: str | Path) -> Translations:
    """Reads the lines S-id, T-id, H-id and D-id of a log, in any order and among others.

    Raises:
        UserError: there is no such file; it has no such lines; one of them is cut off or occurs twice; or sentences are
            missing between 0 and the highest id.
    """
    found: dict[str, dict[int, list[tuple[float, str]]]] = {kind: {} for kind in "STHD"}  # scores and texts by id
    try:
        with open_file(path, encoding="utf-8-sig", newline="\n") as file:
            for count, line in enumerate(file, 1):
                if not line.endswith("\n"):
                    raise UserError(f"{path}, line {count}: found no end of the line: {CUT}")
                if match := SENTENCE.match(line):
                    kind, index, rest = match[1], int(match[2]), line[match.end() :]
                    score, text = ("0", rest) if kind in "ST" else rest.split("\t", 1)
                    found[kind].setdefault(index, []).append((float(score), text.strip()))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: unreadable ({first_line(error)}); expected a log of fairseq-generate") from error
    except ValueError as error:
        raise UserError(f"{path}, line {count}: found no score, tab and text after {kind}-{index}: {CUT}") from error

    sources, references, tokens, _ = found.values()
    if not references or not tokens:
        raise UserError(
            f"{path}: found {len(references)} references (T-…) and {len(tokens)} hypotheses (H-…); expected the output "
            "of fairseq-generate, without --quiet, on data that have a target side"
        )
    found["S"] = sources or references  # some tasks print none
    ids = set().union(*found.values())
    for kind, of_kind in found.items():
        for index in ids:
            number, expected = len(of_kind.get(index, ())), len(tokens.get(index, ())) if kind in "HD" else 1
            if number != expected or not number:
                raise UserError(f"{path}: found {number or 'no'} {kind}-{index}; expected {max(expected, 1)}: {CUT}")
    if len(ids) <= max(ids):
        missing = next(index for index in range(len(ids)) if index not in ids)
        raise UserError(
            f"{path}: found {len(ids)} sentences, but none of id {missing}; expected all of the split: "
            "fairseq-generate drops the last, incomplete batch unless given --required-batch-size-multiple 1, too long "
            "sentences if given --skip-invalid-size-inputs-valid-test, and the other shards if given --num-shards"
        )
    # NaN is no score: a hypothesis with it is chosen only where there is no other.
    best = [
        [max(of_kind[index], key=lambda one: -math.inf if math.isnan(one[0]) else one[0])[1] for index in sorted(ids)]
        for of_kind in found.values()
    ]
    return Translations(str(path), best[0] if sources else [], *best[1:])
