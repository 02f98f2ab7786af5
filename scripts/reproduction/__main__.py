"""Runs a table or figure of the papers: what is missing of data, training and measures, then prints it.

The paper's numbers stand beside ours; `not run` marks models that are not trained (yet, or at this scale), and a dash
what is not part of this package or not defined. What was interrupted is gone on with when it is run again. All is kept
in --output: a folder per model, with its checkpoints, log and measures, and `tables` with the table, its numbers as
JSON and its pictures. Models are shared among the tables of an output folder.

  tiny    minutes on 2 CPU cores, a model: language models on text that Python carries, translation models on the
          {train,valid,test}.{en,de} of --data, such as Multi30k
  small   the paper's data with a smaller model and fewer updates, for one GPU of 24 GB
  paper   the published setting
"""

from __future__ import annotations

import argparse
import re
import signal
import sys
from pathlib import Path

from agg_fairseq.errors import UserError

from ..command import run as run_program
from .bench import Bench, check_fit
from .catalogue import EXPERIMENTS
from .experiment import SCALES
from .run import run

OWN = ("size", "task.data", "checkpoint.save_dir", "checkpoint.finetune_from_model")


def main() -> None:
    """The program.

    Raises:
        UserError: as it is told.
    """
    arguments = _parser().parse_intermixed_args()
    if arguments.list:
        print("\n".join(f"{key:<16} {experiment.title}" for key, experiment in EXPERIMENTS.items()))
        return
    if arguments.table is None:
        raise UserError("found no TABLE; expected one of those that --list prints, such as agg-3")
    if arguments.table not in EXPERIMENTS:
        raise UserError(f"found the table {arguments.table!r}; expected one of {', '.join(EXPERIMENTS)}")
    for override in arguments.overrides:
        _check_override(override)
    if arguments.show and arguments.dry_run:
        raise UserError("found --show and --dry-run; expected one of them: with --show, nothing is trained")
    if arguments.data is not None and not arguments.data.is_dir():
        raise UserError(f"--data: found no folder {arguments.data}; expected one of text, or one that was prepared")
    bench = Bench(
        scale=arguments.scale,
        output=(arguments.output or Path("runs/reproduction") / arguments.scale).absolute(),
        data=arguments.data and arguments.data.absolute(),
        overrides=tuple(arguments.overrides),
        train=not arguments.show,
        dry=arguments.dry_run,
    )
    check_fit(bench.output)
    run(bench, arguments.table, EXPERIMENTS[arguments.table])


def _check_override(override: str) -> None:
    """Sees that it is one, and not of what a table sets itself."""
    if not (found := re.match(r"\+{0,2}([a-z0-9_.]+)=", override)):
        raise UserError(f"found {override!r}; expected key=value, such as optimization.max_update=1000")
    if found[1] in OWN:
        raise UserError(f"found {override!r}; expected --scale, --data or --output for that")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="reproduce.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", nargs="?", metavar="TABLE", help="such as agg-3, agps-figure-2; --list prints all")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="of the configuration of every training")
    parser.add_argument("--scale", choices=SCALES, default="paper", help="(default: paper)")
    parser.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help="text: {train,valid,test}.{en,de}, wiki.{train,valid,test}.tokens; or a folder made by a prepare.sh "
        "(default: at tiny the text of Python's documentation, else data/…, downloaded where it is missing)",
    )
    parser.add_argument("--output", type=Path, metavar="DIR", help="(default: runs/reproduction/SCALE)")
    parser.add_argument("--show", action="store_true", help="train nothing: measure and print what is there")
    parser.add_argument("--dry-run", action="store_true", help="print the trainings that are missing, and start none")
    parser.add_argument("--list", action="store_true", help="print all tables and figures")
    return parser


def _stop(number: int, frame: object) -> None:
    """SIGTERM as Ctrl-C: what was started is ended too."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _stop)
    sys.exit(run_program("reproduce", main))
