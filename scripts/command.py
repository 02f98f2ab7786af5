"""Runs the Python programs behind the scripts: errors are one line, and status 2."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from agg_fairseq.errors import UserError

ROOT = Path(__file__).resolve().parents[1]  # folder of the repository


def run(name: str, main: Callable[[], object]) -> int:
    """Runs a program; returns 0, or 2 for an error, printed in one line after its name, or 130 if interrupted."""
    try:
        main()
    except UserError as error:
        print(f"{name}: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # `| head`: whoever read has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:  # a full disk, a folder that may not be written to
        path = error.filename2 or error.filename  # the second is the target of a copy
        what = f"{path}: " if path else ""
        print(f"{name}: error: {what}{error.strerror or error}; correct that and run it again", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{name}: interrupted; run it again to go on", file=sys.stderr)
        return 130
    return 0


class Parser(argparse.ArgumentParser):
    """A parser of arguments whose errors are one line, without the usage."""

    def __init__(self, prog: str, description: str | None = None, **options: Any) -> None:
        super().__init__(prog, description=description, formatter_class=argparse.RawDescriptionHelpFormatter, **options)

    def error(self, message: str) -> NoReturn:
        """Raises the error."""
        raise UserError(f"{message}; see --help")


def whole_number(text: str) -> int:
    """A whole number from 1, as a type of argparse."""
    if not (text.isascii() and text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f"found {text!r}; expected a whole number from 1")
    return int(text)
