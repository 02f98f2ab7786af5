"""Reading the logs of fairseq-train, and the translations in what fairseq-generate prints."""

import contextlib
import json
import math
import re
from dataclasses import dataclass
from pathlib import Path

from ..errors import UserError
from ..files import read_lines

SENTENCE = re.compile(r"([STHD])-([0-9]{1,18})\t")
CUT = "a truncated log, several in one, or a progress bar in it; run fairseq-generate with --log-format none"
_VALUES = re.compile(r"[^{]*(\{.*\})\s*")


@dataclass(frozen=True)
class Translations:
    """The sentences of a log, in the order of the test set."""

    path: str
    references: list[str]  # the T lines
    tokens: list[str]  # the H lines; of several for a sentence (--nbest), the one with the best score
    texts: list[str]  # the D lines, likewise: what --tokenizer and --bpe made of the tokens; without these, the same

    @property
    def decoded(self) -> bool:
        """Has fairseq-generate detokenized the texts, and with them the references?"""
        return self.texts != self.tokens


def read_translations(path: str | Path) -> Translations:
    """Reads the lines S-id, T-id, H-id and D-id of a log, in any order and among others."""
    lines: dict[str, dict[int, list[tuple[float, str]]]] = {kind: {} for kind in "STHD"}  # scores and texts by id
    for count, line in enumerate(read_lines(path, "a log of fairseq-generate"), 1):
        if not line.endswith("\n"):
            raise UserError(f"{path}, line {count}: found no end of the line: {CUT}")
        if match := SENTENCE.match(line):
            kind, index, rest = match[1], int(match[2]), line[match.end() :]
            try:
                score, text = ("0", rest) if kind in "ST" else rest.split("\t", 1)
                lines[kind].setdefault(index, []).append((float(score), text.strip()))
            except ValueError as error:
                found_text = f"found no score, tab and text after {kind}-{index}"
                raise UserError(f"{path}, line {count}: {found_text}: {CUT}") from error

    sources, references, tokens, texts = lines.values()
    if not references or not tokens:
        raise UserError(f"{path}: found {len(references)} T-… and {len(tokens)} H-… lines; expected fairseq-generate's")
    lines["S"] = sources or references  # some tasks print none; of others, they tell where a log was cut
    ids = set().union(*lines.values())
    for kind, of_kind in lines.items():
        for index in ids:
            number, expected = len(of_kind.get(index, ())), len(tokens.get(index, ())) if kind in "HD" else 1
            if number != expected or not number:
                raise UserError(f"{path}: found {number or 'no'} {kind}-{index}; expected {max(expected, 1)}: {CUT}")
    if len(ids) <= max(ids):
        missing = next(index for index in range(len(ids)) if index not in ids)
        raise UserError(f"{path}: found no id {missing}; run fairseq-generate --required-batch-size-multiple 1")
    # NaN is no score: a hypothesis with it is chosen only where there is no other.
    best = [
        [
            max(of_kind[index], key=lambda line: -math.inf if math.isnan(line[0]) else line[0])[1]
            for index in sorted(ids)
        ]
        for of_kind in (references, tokens, texts)
    ]
    return Translations(str(path), *best)


def read_log(path: str | Path, tag: str = "train_inner") -> list[dict[str, float]]:
    """The numbers that a run logged, in order: a dictionary per update, by the names that fairseq-train prints.

    Args:
        path: what `fairseq-train --log-format json --log-file FILE` wrote.
        tag: "train_inner" (every --log-interval updates), "train" (every epoch) or the name of a validation split.
    """
    entries = read_entries(path).get(tag)
    if not entries:
        raise UserError(f"{path}: found no {tag!r} lines; expected a log of fairseq-train --log-format json --log-file")
    return entries


def read_entries(path: str | Path) -> dict[str, list[dict[str, float]]]:
    """The logged numbers of a run by tag, each as `read_log` returns them; values that are no numbers are left out."""
    lines = read_lines(path, "the file given to fairseq-train --log-file", errors="replace")
    entries: dict[str, list[dict[str, float]]] = {}
    for line in lines:
        match = _VALUES.fullmatch(line)
        try:
            values = json.loads(match[1]) if match else {}
        except (ValueError, RecursionError):  # a line that was cut off, or that is something else
            continue
        # The tag is the prefix of the names.
        tags = (name.removesuffix("_num_updates") for name in values if name.endswith("_num_updates"))
        tag, numbers = next(tags, "train_inner"), {}
        for name, value in {name.removeprefix(f"{tag}_"): value for name, value in values.items()}.items():
            with contextlib.suppress(TypeError, ValueError, OverflowError):  # null, "None", a list: not a number
                numbers[name] = float(value)
        if not math.isfinite(numbers.get("num_updates", math.nan)):
            continue
        # What the log has of this update or of later ones was trained again, or is logged twice.
        of_tag = entries.setdefault(tag, [])
        while of_tag and of_tag[-1]["num_updates"] >= numbers["num_updates"]:
            of_tag.pop()
        of_tag.append(numbers)
    return entries
