"""Runs the Python programs behind the scripts: errors are one line, and status 2."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from agg_fairseq.errors import UserError

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("torch", "fairseq", "hydra")
"""What composing and checking a configuration imports, beside what these bring with them."""


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
        path = error.filename2 or error.filename  # the second is the target of a copy
        what = f"{path}: " if path else ""
        print(f"{name}: error: {what}{error.strerror or error}; mend that and run it again", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{name}: interrupted; run it again to go on", file=sys.stderr)
        return 130
    return 0


def set_up() -> None:
    """Sets up .venv and starts this program there again, if a shell script of this repository has started it.

    Called once the arguments are read and there is work to do. Until then, a program imports nothing but the standard
    library and modules of this repository that do the same: --help and --dry-run work in a fresh clone, at once.
    """
    if os.environ.pop("AGG_SET_UP", None) is None:  # started again, by another program, or by hand
        return
    status = subprocess.run(["bash", str(ROOT / "scripts" / "setup.sh")], stdout=sys.stderr, check=False).returncode
    if status:
        raise SystemExit(status)
    sys.stdout.flush()
    python = str(ROOT / ".venv" / "bin" / "python")
    os.execv(python, [python, *sys.orig_argv[1:]])


def find_packages() -> None:
    """For a dry run that needs `PACKAGES`: goes on in a Python that has them, and never sets anything up.

    As `set_up`, it does nothing unless a shell script of this repository has started the program. If this Python lacks
    a package, the program starts again in the first one on the PATH that has all of them.

    Raises:
        UserError: there is none.
    """
    if os.environ.pop("AGG_SET_UP", None) is None or all(map(importlib.util.find_spec, PACKAGES)):
        return
    check = (
        "import sys; del sys.path[0]; import importlib.util as u; "
        "sys.exit(sys.version_info < (3, 10) or not all(map(u.find_spec, sys.argv[1:])))"
    )
    for python in filter(None, map(shutil.which, ("python3", "python", "python3.11", "python3.12", "python3.10"))):
        if subprocess.run([python, "-c", check, *PACKAGES], capture_output=True, check=False).returncode == 0:
            os.execv(python, [python, *sys.orig_argv[1:]])
    raise UserError(
        f"found no Python with {', '.join(PACKAGES)}, by which --dry-run checks a configuration; bash "
        f"{ROOT / 'scripts' / 'setup.sh'} makes one, .venv"
    )


@contextlib.contextmanager
def writing(*paths: Path) -> Iterator[None]:
    """Gives an OSError the name of the file that is written: the error of `write` on a full disk has none."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = " or ".join(map(str, paths))
        raise
