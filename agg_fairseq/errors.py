"""Errors that the user can correct: one line, exit status 2, no traceback."""

from __future__ import annotations

import re
import sys
import textwrap
from typing import NoReturn

__all__ = ["UserError", "fail"]

FAIRSEQ_REMEDY = (
    "pip install '.[fairseq]', by docs/compatibility.md#install where fairseq has no wheel"
)


class UserError(Exception):
    """An error that the user can correct: what was found, expected, and the remedy, in one line.

    All functions that read files or options may raise it. Their docstrings mention it only where
    they say more.
    """


def fail(message: str) -> NoReturn:
    """Prints the line and ends the process with status 2.

    For code that fairseq calls, which would print a traceback for an exception. It does not catch
    `SystemExit`.
    """
    print(f"agg-fairseq: error: {printable(message)}", file=sys.stderr, flush=True)
    raise SystemExit(2)


def flag(name: str) -> str:
    """An option, as one types it."""
    return f"--{name.replace('_', '-')}"


def printable(text: str) -> str:
    """A text in one line, in which control characters, which a terminal would obey, are escaped."""
    line = " ".join(text.split())
    return re.sub(r"[\x00-\x1f\x7f-\x9f]", lambda one: repr(one[0])[1:-1], line)


def first_line(error: BaseException) -> str:
    """An exception of somebody else's code in one line: its type and the first line of its message.

    After a colon, the others follow, at most 400 characters: torch lists there the parameters that
    do not fit.
    """
    first, *others = str(error).splitlines() or ["no message"]
    if first.endswith(":"):
        first = textwrap.shorten(f"{first} {' '.join(others)}", 400, placeholder=" …")
    return f"{type(error).__name__}: {first}"
