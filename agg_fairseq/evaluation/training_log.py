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
        A dictionary per logged update, by the names that fairseq-train prints; values that are no numbers are left out.

    Raises:
        UserError: no such file, or no line of that kind in it.
    """
    entries = read_entries(path).get(tag)
    if not entries:
        raise UserError(f"{path}: found no {tag!r} lines; expected a log of fairseq-train --log-format json --log-file")
    return entries


def read_entries(path: str | Path) -> dict[str, list[dict[str, float]]]:
    """The logged numbers of a run by tag, each as `read_log` returns them.

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
        match = _VALUES.fullmatch(line)
        tag, numbers = _read(match[1]) if match else ("", {})
        if not math.isfinite(numbers.get("num_updates", math.nan)):
            continue
        # What the log has of this update or of later ones was trained again, or is logged twice.
        of_tag = entries.setdefault(tag, [])
        while of_tag and of_tag[-1]["num_updates"] >= numbers["num_updates"]:
            of_tag.pop()
        of_tag.append(numbers)
    return entries


def _read(text: str) -> tuple[str, dict[str, float]]:
    """The tag of a line, which is the prefix of its names, and its numbers by the names without the prefix."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):  # a line that was cut off, or that is something else
        return "", {}
    tag = next((name.removesuffix("_num_updates") for name in values if name.endswith("_num_updates")), "train_inner")
    numbers = {}
    for name, value in {name.removeprefix(f"{tag}_"): value for name, value in values.items()}.items():
        try:
            numbers[name] = float(value)
        except (TypeError, ValueError, OverflowError):  # null, "None", a list: not a number
            continue
    return tag, numbers
