"""Reading the logs of fairseq-train."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

from ..errors import UserError
from ..files import open_file

_VALUES = re.compile(r"[^{]*(\{.*\})\s*")


def read_log(path: str | Path, tag: str = "train_inner") -> list[dict[str, float]]:
    """The logged numbers of a run, in order.

    Args:
        path: what `fairseq-train --log-format json --log-file FILE` wrote.
        tag: "train_inner" (every --log-interval updates), "train" (every epoch) or the name of a validation split.

    Returns:
        A dictionary per logged update, by the names that fairseq-train prints; what is no number is left out.

    Raises:
        UserError: no such file, or no line of that kind in it.
    """
    entries = read_entries(path).get(tag)
    if not entries:
        raise UserError(f"{path}: found no {tag!r} lines; expected a log of fairseq-train --log-format json --log-file")
    return entries


def read_entries(path: str | Path) -> dict[str, list[dict[str, float]]]:
    """The logged numbers of a run, as of `read_log`, by tag.

    Raises:
        UserError: no such file.
    """
    try:
        with open_file(path, encoding="utf-8", errors="replace", newline="\n") as file:
            lines = file.readlines()
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; expected the file given to fairseq-train --log-file") from error
    entries: dict[str, list[dict[str, float]]] = {}
    for line in lines:
        if match := _VALUES.fullmatch(line):
            tag, numbers = _read(match[1])
            if math.isfinite(numbers.get("num_updates", math.nan)):
                _append(entries.setdefault(tag, []), numbers)
    return entries


def _append(entries: list[dict[str, float]], numbers: dict[str, float]) -> None:
    """Adds what was logged at an update; what there is of it or of later ones was trained again, or logged twice."""
    while entries and entries[-1]["num_updates"] >= numbers["num_updates"]:
        entries.pop()
    entries.append(numbers)


def _read(text: str) -> tuple[str, dict[str, float]]:
    """The kind of a line, told by the prefix of its names, and its numbers without the prefix."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):  # a line cut off by an interruption, or of something else
        return "", {}
    tag = next((name.removesuffix("_num_updates") for name in values if name.endswith("_num_updates")), "train_inner")
    return tag, _numbers({name.removeprefix(f"{tag}_"): value for name, value in values.items()})


def _numbers(values: dict[str, object]) -> dict[str, float]:
    numbers = {}
    for name, value in values.items():
        try:
            numbers[name] = float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError, OverflowError):  # null, "None", a list: not a number
            continue
    return numbers
