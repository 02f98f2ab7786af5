"""Runs a module of this repository as a program, wherever the user is: python PATH/scripts/run.py MODULE [ARGUMENT…]

`python -m` would look for modules in the user's folder first, and run a file there that is named like one of them.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path


def main() -> None:
    """Runs the module with the arguments that follow its name."""
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
