"""Reads the logs of fairseq-train, and the translations that fairseq-generate prints."""

import json
import math
import re
from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..errors import UserError
from ..files import read_lines

SENTENCE = re.compile(r"([THD])-([0-9]{1,18})\t")
SPLIT = re.compile(r".*\w-(\w+) ([0-9]{1,18}) examples\s*")
RECORD = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \| (INFO|WARNING) \| fairseq")
CUT = (
    "a truncated log, several in one, or a progress bar or stderr in it; run PYTHONUNBUFFERED=1 "
    "fairseq-generate with --log-format none"
)
VALUES = re.compile(r"[^{]*(\{.*\})\s*")


@dataclass(frozen=True)
class Translations:
    """The sentences of a log, in the order of the test set."""

    path: str
    references: list[str]  # the T lines
    tokens: list[str]  # the H lines; of several for a sentence (--nbest), that of the best score
    texts: list[str]  # the D lines, likewise: what --tokenizer and --bpe made of the tokens
    language: str | None = None  # of the target side, where the log says it

    @property
    def decoded(self) -> bool:
        """Whether fairseq-generate has detokenized the texts, and with them the references."""
        return self.texts != self.tokens


def read_translations(path: str | Path) -> Translations:
    """Reads the lines T-id, H-id and D-id of a log, in any order and among others."""
    best: dict[str, dict[int, tuple[float, str]]] = {"T": {}, "H": {}, "D": {}}  # by id
    numbers: dict[str, Counter[int]] = {"T": Counter(), "H": Counter(), "D": Counter()}  # of lines
    language, examples = None, 0
    for count, line in enumerate(read_lines(path, "a log of fairseq-generate"), 1):
        match = SENTENCE.match(line)
        if not match:
            if split := SPLIT.fullmatch(line):
                language, examples = split[1], int(split[2])
            continue
        kind, index, rest = match[1], int(match[2]), line[match.end() :]
        try:
            if not rest.endswith("\n") or RECORD.search(rest):
                raise ValueError  # the line has no end of its own
            score, text = ("0", rest) if kind == "T" else rest.split("\t", 1)
            number = -math.inf if math.isnan(float(score)) else float(score)
        except ValueError as error:
            raise UserError(f"{path}, line {count}: found half a line: {CUT}") from error
        numbers[kind][index] += 1
        if index not in best[kind] or number > best[kind][index][0]:
            best[kind][index] = number, text.strip()
    ids = sorted(numbers["T"])
    is_complete = numbers["T"] == dict.fromkeys(ids, 1) and numbers["H"] == numbers["D"]
    if not ids or not is_complete or numbers["H"].keys() != set(ids):
        found = ", ".join(f"{number.total()} {kind}-…" for kind, number in numbers.items())
        raise UserError(f"{path}: found {found} lines, which do not belong together: {CUT}")
    if len(ids) < (expected := max(examples, ids[-1] + 1)):
        raise UserError(
            f"{path}: found {len(ids)} of {expected} sentences; run fairseq-generate "
            "--required-batch-size-multiple 1, without which it drops the last batch"
        )
    sides = []
    for hypotheses in best.values():
        sides.append([hypotheses[index][1] for index in ids])
    return Translations(str(path), *sides, language)


def read_log(
    path: str | Path, *tags: str, values: Collection[str] | None = None
) -> list[list[dict[str, float]]]:
    """The numbers that a run logged, in order, by tag: a dictionary per update, by the names that
    fairseq-train prints. What was trained again after a resume replaces what was logged before.

    Args:
        path: what `fairseq-train --log-format json --log-file FILE` wrote.
        tags: "train_inner" (every --log-interval updates), "train" (every epoch) or the name of a
            validation split.
        values: names to read, `num_updates` beside them; None: all.
    """
    found, wanted = {}, {}  # by what the names in a line begin with
    for tag in tags:
        prefix = "" if tag == "train_inner" else f"{tag}_"
        found[prefix] = list[dict[str, float]]()
        wanted[prefix] = values and {f"{prefix}{name}" for name in (*values, "num_updates")}
    for line in read_lines(path, "the file given to fairseq-train --log-file", errors="replace"):
        for prefix, entries in found.items():
            if f'"{prefix}num_updates"' not in line:  # as json.dumps writes it
                continue
            match, numbers = VALUES.fullmatch(line), {}
            try:
                logged = json.loads(match[1]) if match else {}
            except ValueError:  # a line that was cut off, or that is something else
                continue
            for name in logged.keys() & wanted[prefix] if values else logged:
                if name.startswith(prefix):
                    with suppress(TypeError, ValueError):  # of null, "None" or a list
                        numbers[name.removeprefix(prefix)] = float(logged[name])
            if "num_updates" in numbers:
                while entries and entries[-1]["num_updates"] >= numbers["num_updates"]:
                    entries.pop()
                entries.append(numbers)
    for tag, entries in zip(tags, found.values(), strict=True):
        if not entries:
            raise UserError(
                f"{path}: found no {tag!r} lines; expected a log of fairseq-train "
                "--log-format json --log-file, of at least --log-interval (100) updates"
            )
    return [*found.values()]
