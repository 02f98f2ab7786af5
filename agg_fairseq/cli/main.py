"""Entry point of `agg-fairseq`: one sub-command per module of this folder."""

import argparse
import ast
import importlib
import io
import logging
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NoReturn

from .. import __version__
from ..columns import METRICS
from ..errors import FAIRSEQ_REMEDY, UserError, printable
from ..files import check_writable, write_json
from ..result import Result

COMMANDS = (
    "groups", "eval-lm", "generate-lm", "text-metrics", "bleu", "isotropy", "align", "align-sim",
    "word-similarity", "neighbors", "calibrate", "average-checkpoints", "report", "plot", "doctor",
    "user-dir",
)  # fmt: skip
"""In the order of --help, which is the docstring of the module of this name, with underscores."""
REMEDIES = {
    **dict.fromkeys(("fairseq", "fairseq_cli", "hydra", "omegaconf"), FAIRSEQ_REMEDY),
    **dict.fromkeys(
        ("jinja2", "matplotlib", "sacrebleu", "sacremoses", "safetensors", "scipy", "tokenizers"),
        "pip install '.[eval]'",
    ),
    "eflomal": "pip install '.[align]', or take the links of another aligner, such as fast_align",
}
"""Packages that some commands need, and how to install them."""
DEBUG_VARIABLE = "AGG_DEBUG"  # the variable with which the traceback of an error is shown
JSON_BEGINNING = rb'\{\n  "signature"'
# a zip archive, of which this is the first entry
CHECKPOINT_BEGINNING = rb"PK\x03\x04.{26}[^/]+/data\.pkl"
BEGINNINGS = {
    "average-checkpoints": CHECKPOINT_BEGINNING,
    "calibrate": CHECKPOINT_BEGINNING,
    "generate-lm": rb'\{"prefix": ',
    "align": rb"\d+-\d+[ \n]|\n",
    "plot": rb"\x89PNG|%PDF|<\?xml[^>]*>\s*<!DOCTYPE svg",
    "report": rb"\s*<!DOCTYPE html>.{,120}img-src data:",
}
"""How --output begins: a pattern for each command that has it."""


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Ends the process with status 2, without the usage, which is many lines."""
        self.exit(2, f"{self.prog}: error: {message}; see {self.prog} --help\n")


class HelpFormatter(argparse.RawDescriptionHelpFormatter, argparse.ArgumentDefaultsHelpFormatter):
    """Descriptions keep their lines; options tell their defaults, except None and flags."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if action.default in (None, ()) or action.nargs == 0:
            return action.help
        return super()._get_help_string(action)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a sub-command, prints its `Result`, and returns the exit status, 2 for errors that the
    user can correct."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # tokens are of any script, terminals are not
            stream.reconfigure(errors="backslashreplace")
    parser = build_parser(arguments)
    chosen = parser.parse_args(arguments)
    if chosen.command is None:
        parser.print_help(sys.stderr)
        return 2
    logging.disable(logging.INFO)  # importing fairseq turns on the debug messages of every library
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of fairseq's use of torch
            check_outputs(chosen)
            result = chosen.run(chosen)
        if isinstance(result, Result):
            if chosen.json is not None:
                write_json(chosen.json, result.json())
            print(f"{result.table(chosen.columns, transposed=chosen.transposed)}\n")
            for advice in ("prediction", "window"):
                if advice in result.facts:
                    print(f"{result.facts[advice]}\n")
            print(printable(result.signature))
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except KeyboardInterrupt:
        print("agg-fairseq: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `| head`: whoever read has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        message = error_message(error)
        if message is None or os.environ.get(DEBUG_VARIABLE):
            raise
    finally:
        logging.disable(logging.NOTSET)
    command = " ".join(filter(None, (chosen.command, getattr(chosen, "picture", None))))
    print(f"agg-fairseq {command}: error: {printable(message)}", file=sys.stderr)
    return 2


def error_message(error: Exception) -> str | None:
    """The line of an error that a user may be able to correct; None for any other."""
    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, ModuleNotFoundError):
        missing = (error.name or "").partition(".")[0]
        remedy = REMEDIES.get(missing)
        return remedy and f"found no {missing}, which this command needs; {remedy}"
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename else str(error)
    # What fairseq, torch, transformers or eflomal refuse; it may be a fault of this package too.
    if isinstance(error, AssertionError | RuntimeError | ValueError | subprocess.SubprocessError):
        return f"{str(error) or repr(error)} ({DEBUG_VARIABLE}=1 shows the traceback)"
    return None


def build_parser(imported: Collection[str]) -> argparse.ArgumentParser:
    """The parser of the command line, with the options of the `imported` sub-commands alone, so
    that `doctor` runs where the needs of others are missing."""
    parser = Parser(
        prog="agg-fairseq",
        description="Measures and plots token embeddings. The training objectives are fairseq "
        'criterions, used as: fairseq-train --user-dir "$(agg-fairseq user-dir)" --criterion agg …',
    )
    parser.add_argument("--version", action="version", version=f"agg-fairseq {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name in COMMANDS:
        file = Path(__file__).with_name(f"{name.replace('-', '_')}.py")
        description = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))
        summary = " ".join(description.partition("\n\n")[0].split()).rstrip(".:")
        command = commands.add_parser(
            name, help=summary, description=description, formatter_class=HelpFormatter
        )
        if name not in imported:
            continue
        module = importlib.import_module(f".{file.stem}", __package__)
        if names := getattr(module, "EXPLAINED", ()):
            lines = [f"  {METRICS[name].explanation}" for name in names]
            command.epilog = "\n".join(["columns:", *lines])
        command.set_defaults(run=module.run, columns=None, transposed=False)
        if hasattr(module, "add_arguments"):
            module.add_arguments(command)
    return parser


def check_outputs(arguments: argparse.Namespace) -> None:
    """Checks that --output and --json are two files, and replace only files of a command."""
    known = {"output": BEGINNINGS.get(arguments.command), "json": JSON_BEGINNING}
    seen = set()
    for option, pattern in known.items():
        if getattr(arguments, option, None) is None:
            continue
        path = Path(getattr(arguments, option))
        if path.resolve() in seen:
            raise UserError(f"--{option}: found the file of --output, {path}; name another")
        seen.add(path.resolve())
        check_writable(path)
        if path.is_file():
            with path.open("rb") as file:
                beginning = file.read(512)
            if beginning and not re.match(pattern, beginning, re.DOTALL):
                raise UserError(
                    f"--{option}: found {path}, a file that no command here wrote; name another"
                )
