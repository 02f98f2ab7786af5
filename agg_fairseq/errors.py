"""Errors that a user can mend: one line, exit status 2, no traceback."""

from __future__ import annotations

import sys
from typing import NoReturn


class UserError(Exception):
    """What was found, what was expected and the remedy, in one line."""


def fail(message: str) -> NoReturn:
    """Prints the line and ends the process with status 2.

    For code that fairseq calls: it has no place of its own for errors that are the user's to mend, and would print a
    traceback. `SystemExit` passes through it untouched.
    """
    print(f"agg-fairseq: error: {' '.join(message.split())}", file=sys.stderr, flush=True)
    raise SystemExit(2)
