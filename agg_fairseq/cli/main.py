"""Entry point of `agg-fairseq`: one sub-command per module of this folder."""

from __future__ import annotations

import argparse
import importlib
import io
import logging
import os
import re
import sys
import warnings
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NoReturn

from .. import __version__
from ..columns import METRICS
from ..errors import FAIRSEQ_REMEDY, UserError
from ..files import check_writable, write_json
from ..result import Result

COMMANDS = {
    "groups": "how much of a text is rare: sizes and shares of its frequency groups, before "
    "training",
    "eval-lm": "perplexity, distinct predictions and isotropy of language models, by frequency "
    "group",
    "generate-lm": "continuations of a split's prefixes by a language model, greedy or sampled",
    "text-metrics": "how close generated texts are to the references, how similar and how varied",
    "bleu": "tokenized BLEU and sacreBLEU of what fairseq-generate printed",
    "isotropy": "isotropy, mean cosines and singular values of output embeddings, by frequency "
    "group",
    "align": "word alignments of a parallel training split, by eflomal",
    "align-sim": "similarity of the embeddings of aligned words in translation models, by group",
    "word-similarity": "agreement of output embeddings with human scores of pairs of words",
    "neighbors": "the tokens whose output embeddings are nearest to those of given words",
    "calibrate": "rare tokens expected as often as they appear: one offset per group, as a bias",
    "average-checkpoints": "the mean of the last checkpoints of a run, as a checkpoint",
    "report": "one HTML page that compares runs: settings, curves, all measures and pictures, "
    "texts",
    "plot": "the papers' pictures: embeddings, singular values, isotropy and rare group over the "
    "updates, …",
    "doctor": "versions found, and what cannot work with them, each with its remedy",
    "user-dir": "print the folder to pass to fairseq's --user-dir",
}
"""A line about each command; its module has the same name, with underscores."""
FAIRSEQ = ("fairseq", "fairseq_cli", "hydra", "omegaconf")
EVAL = ("jinja2", "matplotlib", "sacrebleu", "sacremoses", "safetensors", "scipy", "tokenizers")
EXTRAS = {**dict.fromkeys(FAIRSEQ, FAIRSEQ_REMEDY), **dict.fromkeys(EVAL, "pip install '.[eval]'")}
"""Packages that some commands need, and how to install them."""
DEBUG = "AGG_DEBUG"  # the variable with which the traceback of an error is shown
NUMBERS = rb'\{\n  "signature"'
CHECKPOINT = rb"PK\x03\x04.{26}[^/]+/data\.pkl"  # a zip archive, of which this is the first entry
BEGINNINGS = {
    "average-checkpoints": CHECKPOINT,
    "calibrate": CHECKPOINT,
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
    """Descriptions keep their lines, and options tell their defaults, unless they are None or
    flags."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if action.default in (None, []) or action.nargs == 0:
            return action.help
        return super()._get_help_string(action)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a sub-command, prints its `Result`, and returns the exit status.

    It is 0; 2 without a command and for errors that the user can correct; 1 if `doctor` finds that
    no training can start.
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # and no buffer of a caller
            # tokens are of any script, terminals are not
            stream.reconfigure(errors="backslashreplace")
    parser = build_parser(arguments)
    chosen = parser.parse_args(arguments)
    if chosen.command is None:
        parser.print_help(sys.stderr)
        return 2
    logging.disable(logging.INFO)  # importing fairseq turns on the debug messages of every library
    try:
        with warnings.catch_warnings():
            # of fairseq's use of torch: nothing that a user could change
            warnings.simplefilter("ignore")
            check_outputs(chosen)
            result = chosen.run(chosen)
        if isinstance(result, Result):
            if chosen.json is not None:
                write_json(chosen.json, result.json())
            table = result.table(
                getattr(chosen, "columns", None), transposed=getattr(chosen, "transposed", False)
            )
            print(f"{table}\n\n{result.signature}")
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except KeyboardInterrupt:
        print("agg-fairseq: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `| head`: whoever read has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        message = message_of(error)
        if message is None or os.environ.get(DEBUG):
            raise
    finally:
        logging.disable(logging.NOTSET)
    command = " ".join(filter(None, (chosen.command, getattr(chosen, "picture", None))))
    print(f"agg-fairseq {command}: error: {' '.join(message.split())}", file=sys.stderr)
    return 2


def message_of(error: Exception) -> str | None:
    """An error that a user may be able to correct, as one line; None for any other error."""
    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, ModuleNotFoundError):
        missing = (error.name or "").partition(".")[0]
        remedy = EXTRAS.get(missing)
        return remedy and f"found no {missing}, which this command needs; {remedy}"
    if isinstance(error, OSError):  # a name that is too long for a file, a disk that fails
        return f"{error.filename}: {error.strerror}" if error.filename else str(error)
    # What fairseq, torch or transformers refuse; it may be a fault of this package too.
    if isinstance(error, AssertionError | RuntimeError | ValueError):
        return f"{str(error) or repr(error)} ({DEBUG}=1 shows the traceback)"
    return None


def build_parser(imported: Collection[str]) -> argparse.ArgumentParser:
    """The parser of the command line, with the options of the `imported` sub-commands.

    Only those are imported: `doctor` must run where the others' needs are missing.
    """
    parser = Parser(
        prog="agg-fairseq",
        description="Measures and plots token embeddings. The training objectives are fairseq "
        "criterions, "
        'used as: fairseq-train --user-dir "$(agg-fairseq user-dir)" --criterion agg …',
    )
    parser.add_argument("--version", action="version", version=f"agg-fairseq {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, summary in COMMANDS.items():
        command = commands.add_parser(name, help=summary, formatter_class=HelpFormatter)
        if name not in imported:
            continue
        module = importlib.import_module(f".{name.replace('-', '_')}", __package__)
        command.description = module.__doc__
        if names := getattr(module, "EXPLAINED", ()):
            command.epilog = "columns:\n" + "\n".join(
                f"  {METRICS[name].explanation}" for name in names
            )
        if hasattr(module, "add_arguments"):
            module.add_arguments(command)
        command.set_defaults(run=module.run)
    return parser


def check_outputs(arguments: argparse.Namespace) -> None:
    """Checks, before any work, that --output and --json are two files, and replace only files that
    a command wrote."""
    paths = {"output": getattr(arguments, "output", None), "json": getattr(arguments, "json", None)}
    paths = {option: Path(path) for option, path in paths.items() if path is not None}
    if len({path.resolve() for path in paths.values()}) < len(paths):
        raise UserError(f"--json: found the file of --output, {arguments.json}; name another")
    for option, path in paths.items():
        check_writable(path)
        if path.is_file():
            with path.open("rb") as file:
                beginning = file.read(512)
            pattern = NUMBERS if option == "json" else BEGINNINGS[arguments.command]
            if beginning and not re.match(pattern, beginning, re.DOTALL):
                raise UserError(
                    f"--{option}: found {path}, a file that no command here wrote; name another"
                )
