"""What the Python programs behind the scripts share: errors are one line, and status 2."""

import sys
from collections.abc import Callable
from pathlib import Path

from agg_fairseq.errors import UserError

ROOT = Path(__file__).resolve().parents[1]  # folder of the repository


def run(name: str, main: Callable[[], object]) -> int:
    """Runs a program; returns 0, or 2 for an error, printed in one line after its name, or 130 if
    interrupted."""
    try:
        main()
    # of the latter, a full disk, a folder that may not be written to
    except (UserError, OSError) as error:
        print(f"{name}: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{name}: interrupted; run it again to go on", file=sys.stderr)
        return 130
    return 0
