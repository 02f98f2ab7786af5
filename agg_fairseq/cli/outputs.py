"""The files that commands write: `--json` and `-o`."""

import argparse
import re
from pathlib import Path

from ..errors import UserError
from ..files import check_writable

BEGINNINGS = {
    "numbers": rb'\{\n  "signature"',
    "checkpoint": rb"PK\x03\x04.{26}[^/]+/data\.pkl",  # a zip archive, of which this is the first entry
    "picture": rb"\x89PNG|%PDF|<\?xml[^>]*>\s*<!DOCTYPE svg",
    "page": rb"\s*<!DOCTYPE html>.{,120}img-src data:",
    "texts": rb'\{"prefix": ',
    "alignments": rb"\d+-\d+[ \n]|\n",
}
"""How the files that commands write begin: a pattern for each kind."""


def add_output(parser: argparse.ArgumentParser, kind: str, help_text: str = "") -> None:
    """`-o`, the file that a command makes, of a kind of `BEGINNINGS`."""
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help=help_text or f"{kind} to write")
    parser.set_defaults(kind=kind)


def check_outputs(arguments: argparse.Namespace) -> None:
    """Checks, before any work, that --output and --json are two files, and replace only files that a command wrote."""
    paths = {"output": getattr(arguments, "output", None), "json": getattr(arguments, "json", None)}
    paths = {option: Path(path) for option, path in paths.items() if path is not None}
    if len({path.resolve() for path in paths.values()}) < len(paths):
        raise UserError(f"--json: found the file of --output, {arguments.json}; name another")
    for option, path in paths.items():
        check_writable(path)
        if path.is_file():
            with path.open("rb") as file:
                beginning = file.read(512)
            kind = arguments.kind if option == "output" else "numbers"
            if beginning and not re.match(BEGINNINGS[kind], beginning, re.DOTALL):
                raise UserError(f"--{option}: found {path}, a file that no command here wrote; name another")
