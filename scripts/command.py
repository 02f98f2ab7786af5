"""Runs the Python programs behind the scripts: errors are one line, and status 2."""

from __future__ import annotations

import sys
from collections.abc import Callable

from agg_fairseq.errors import UserError


def run(name: str, main: Callable[[], None]) -> int:
    """Runs a program.

    Args:
        name: what its messages begin with.
        main: the program.

    Returns:
        Exit status: 0; 2 for an error that the user can mend, printed in one line; 130 if it was interrupted.
    """
    try:
        main()
    except UserError as error:
        print(f"{name}: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except OSError as error:  # a full disk, a folder that may not be written to
        what = f"{error.filename}: " if error.filename else ""
        print(f"{name}: error: {what}{error.strerror or error}; mend that and run it again", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{name}: interrupted; run it again to go on", file=sys.stderr)
        return 130
    return 0
