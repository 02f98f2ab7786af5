"""Errors that a user can mend: one line, exit status 2, no traceback."""

from __future__ import annotations

import platform
import sys
from typing import NoReturn

_HAS_WHEEL = (sys.platform, platform.machine()) == ("linux", "x86_64") and (3, 11) <= sys.version_info < (3, 13)
FAIRSEQ_REMEDY = (
    "pip install ve-fairseq==0.12.3"
    if _HAS_WHEEL
    else "pip install --no-build-isolation fairseq-fixed==0.12.3.1 (after torch, cython, numpy, setuptools, wheel)"
)
"""How fairseq is installed; the choice is that of setup.py."""


class UserError(Exception):
    """What was found, what was expected and the remedy, in one line.

    Whatever reads files or options may raise it; docstrings name it where that is not all that there is to say.
    """


def fail(message: str) -> NoReturn:
    """Prints the line and ends the process with status 2.

    For code that fairseq calls: it has no place of its own for errors that are the user's to mend, and would print a
    traceback. `SystemExit` passes through it untouched.
    """
    print(f"agg-fairseq: error: {' '.join(message.split())}", file=sys.stderr, flush=True)
    raise SystemExit(2)


def first_line(error: BaseException) -> str:
    """An exception of somebody else's code in one line: its type and the first line of its message."""
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"
