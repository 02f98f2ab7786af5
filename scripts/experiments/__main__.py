"""Runs tables and figures of the papers, and experiments of our own, from the data to the table.

Missing data is prepared, missing models are trained, and missing numbers are measured. The table shows the paper's
numbers next to ours: `not run` marks models that are not trained (yet, or at this scale), `quoted` systems of others
that are not part of this package, and a dash a value that is undefined. To continue after an interruption, run the same
command again. All output is in the folder --output: a folder per model with its checkpoints, log and results, and a
folder `tables` with the table, its numbers as JSON and its pictures. The tables of an output folder share their models.

  tiny    minutes on 2 CPU cores for each model: language models on the documentation of Python, translation models on
          the {train,valid,test}.{en,de} of --data, such as Multi30k
  small   the paper's data with a smaller model and fewer updates, for one GPU of 24 GB
  paper   the published setting

Our own experiments (demo, objectives, f2, multi30k, cures) have one size, which can be changed by options, and each has
an output folder of its own.
"""

from __future__ import annotations

import argparse
import logging
import re
import signal
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from agg_fairseq.errors import UserError

from ..command import find_packages, run, set_up
from ..data.prepared_folder import MANIFEST
from .cost import NOT_RUN, described
from .entries import EXPERIMENTS, OURS, Options
from .experiment import SCALES, Experiment, Model, Workspace, check_path, say
from .training import check_settings, train_all

OWN = ("size", "task.data", "checkpoint.save_dir", "checkpoint.finetune_from_model")
"""What the command line sets by options of its own, or a table does."""
FRACTION = re.compile(r"0?\.[0-9]*[1-9][0-9]*")


def main() -> None:
    """The command line.

    Raises:
        UserError: an argument does not fit; or preparing, training or measuring failed.
    """
    arguments = _parser().parse_intermixed_args()
    if arguments.list:
        for key, experiment in EXPERIMENTS.items():
            quoted = ", ".join(method.label for method in experiment.methods if method.model is None)
            print(f"{key:<16} {experiment.title}{f' (quoted: {quoted})' if quoted else ''}")
        for key, entry in OURS.items():
            print(f"{key:<16} ours: {entry.title}")
        return
    if arguments.show and arguments.dry_run:
        raise UserError("found --show and --dry-run; expected one of them: with --show, nothing is trained")
    if arguments.models:
        find_packages() if arguments.dry_run else set_up()  # fairseq reads the options of --model
    plan = _plan(arguments)
    if not arguments.dry_run:
        set_up()
    trainings: dict[Path, tuple[Workspace, Model]] = {}
    for key, experiment, workspaces in plan:
        if experiment.check is not None and not arguments.show:
            try:
                experiment.check()
            except UserError as error:
                if not arguments.dry_run:
                    raise
                say(f"{key} cannot be measured yet: {error}")
        for workspace in workspaces:
            check_path(workspace.output)
        for workspace, model in experiment.trainings(workspaces):
            trainings.setdefault(workspace.folder(model), (workspace, model))
    if not arguments.dry_run:
        for training in trainings.values():
            check_settings(*training)
    if not arguments.show:
        default = max(OURS[key].jobs if key in OURS else 1 for key, _, _ in plan)
        train_all(list(trainings.values()), 1 if arguments.dry_run else arguments.jobs or default)
    if arguments.dry_run:
        for key, experiment, workspaces in plan:
            for line in described(key, experiment, workspaces, arguments.gpus or 1):
                print(f"# {line}")
        if arguments.scale == "paper" and any(key in EXPERIMENTS for key, *_ in plan):
            print(f"# {NOT_RUN}")
        return
    failed = []
    for number, (key, experiment, workspaces) in enumerate(plan):
        if number:
            print()
        from .tables import show

        try:
            show(workspaces, key, experiment)
        except UserError as error:
            if len(plan) == 1:
                raise
            print(f"reproduce: {key}: error: {' '.join(str(error).split())}", file=sys.stderr)  # the others are shown
            failed.append(key)
    if failed:
        raise UserError(f"found errors in {', '.join(failed)}, see above; mend them and run it again")


def _plan(arguments: argparse.Namespace) -> list[tuple[str, Experiment, list[Workspace]]]:
    """The experiments of all entries, with the name of the entry and a workspace per seed."""
    entries, overrides = _entries_and_overrides(arguments.words)
    options = {name: getattr(arguments, name) for name in vars(Options()) if name != "data"}
    given = {name: value for name, value in options.items() if value is not None}
    for name in given:
        if not any(name in OURS[key].accepts for key in entries if key in OURS):
            option = {"models": "model"}.get(name, name).replace("_", "-")
            raise UserError(f"--{option}: found it with {', '.join(entries)}, which cannot take it; see --help")
    if arguments.seeds and any(override.lstrip("+").startswith("common.seed=") for override in overrides):
        raise UserError("found common.seed= with --seeds; expected one of them")
    data = arguments.data and arguments.data.absolute()
    if arguments.vocabulary is not None and data is not None and (data / MANIFEST).is_file():
        raise UserError(f"--vocabulary: found it with {data}, which was prepared with a vocabulary; leave it out")
    seeds, prepared, plan = list(dict.fromkeys(arguments.seeds or [None])), {}, []
    for key in entries:
        if key in OURS:
            entry, scale = OURS[key], "tiny"
            accepted = {name: value for name, value in given.items() if name in entry.accepts}
            experiments = entry.build(Options(data=data, **{**entry.defaults, **accepted}))
            output = arguments.output or Path(entry.output)
            if len(entries) > 1 and arguments.output is not None:
                output = arguments.output / key  # each has a corpus of its own
        else:
            experiments, scale = [EXPERIMENTS[key]], arguments.scale
            output = arguments.output or Path("runs/reproduction") / scale
        if data is not None and not data.is_dir():
            raise UserError(f"--data: found no folder {arguments.data}; expected one of text, or one that was prepared")
        workspaces = [
            Workspace(
                scale=scale,
                output=output.absolute(),
                data=data,
                overrides=tuple(overrides),
                train=not arguments.show,
                dry=arguments.dry_run,
                gpus=arguments.gpus,
                seed=seed,
                models=f"seed-{seed}" if len(seeds) > 1 else "",
                prepared=prepared,
            )
            for seed in seeds
        ]
        plan += [(key, experiment, workspaces) for experiment in experiments]
    return plan


def _entries_and_overrides(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The names of entries, and KEY=VALUE for every training."""
    entries, overrides = [word for word in words if "=" not in word], [word for word in words if "=" in word]
    if not entries:
        raise UserError("found no ENTRY; expected some of those that --list prints, such as agg-3")
    for key in entries:
        if key not in EXPERIMENTS and key not in OURS:
            known = ", ".join([*EXPERIMENTS, *OURS])
            raise UserError(f"found the entry {key!r}; expected one of {known}; or key=value, for every training")
    for override in overrides:
        if not (found := re.match(r"\+{0,2}([a-z0-9_.]+)=", override)):
            raise UserError(f"found {override!r}; expected key=value, such as optimization.max_update=1000")
        if found[1] in OWN:
            raise UserError(f"found {override!r}; expected --scale, --data or --output for that")
    return list(dict.fromkeys(entries)), overrides


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Raises the error as one line, without the usage."""
        raise UserError(f"{message}; see --help")


def _number(text: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]*", text):
        raise argparse.ArgumentTypeError(f"found {text!r}; expected a whole number from 1")
    return int(text)


def _dimension(text: str) -> int:
    if _number(text) % 4:
        raise argparse.ArgumentTypeError(f"found {text!r}; expected a multiple of 4, the number of heads")
    return int(text)


def _fractions(text: str) -> tuple[str, ...]:
    fractions = tuple(text.split())
    if not fractions or not all(map(FRACTION.fullmatch, fractions)):
        raise argparse.ArgumentTypeError(f"found {text!r}; expected numbers between 0 and 1")
    return fractions


def _folder(text: str) -> Path:
    if not text:
        raise argparse.ArgumentTypeError("found ''; expected a folder")
    return Path(text)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="reproduce.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "words", nargs="*", metavar="ENTRY", help="such as agg-3, agps-figure-2, demo; several may be given; --list "
        "prints all. KEY=VALUE changes the configuration of every training",
    )  # fmt: skip
    parser.add_argument("--list", action="store_true", help="print all entries")
    parser.add_argument("--scale", choices=SCALES, default="paper", help="scale of tables and figures (default: paper)")
    parser.add_argument(
        "--data", type=_folder, metavar="DIR",
        help="folder of text, {train,valid,test}.{en,de} or wiki.{train,valid,test}.tokens, or a folder made by a "
        "prepare.sh (default: the documentation of Python at tiny and for the demo, otherwise data/…, downloaded if it "
        "is missing)",
    )  # fmt: skip
    parser.add_argument(
        "--output",
        type=_folder,
        metavar="DIR",
        help="output folder (default: runs/reproduction/SCALE; runs/demo, … for our own)",
    )
    parser.add_argument(
        "--seeds", "--seed", dest="seeds", type=_number, nargs="+", metavar="N",
        help="random seeds of all models (default: that of the configurations, 1). With several seeds, the models of "
        "each are in a folder seed-N, and tables have mean ± standard deviation",
    )  # fmt: skip
    parser.add_argument(
        "--jobs",
        type=_number,
        metavar="N",
        help="trainings at the same time, sharing the cores (default: 1; demo: 2, if there are as many cores)",
    )
    parser.add_argument("--show", action="store_true", help="train nothing: measure and print the existing models")
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="print the commands of missing trainings and what they take (tokens per update, GPU hours, disk space), "
        "and start none; the GPUs need not be there",
    )
    parser.add_argument(
        "--gpus",
        type=_number,
        metavar="N",
        help="number of GPUs of each training (default: all that are visible; 1 with --dry-run)",
    )
    ours = parser.add_argument_group("options of our own experiments")
    ours.add_argument(
        "--corpus", choices=("python", "wikitext"),
        help="of demo and objectives: the documentation of Python, in sub-words (default of demo), or files of --data "
        "named as in the WikiText archives, wiki.train.tokens, …, in words (default of objectives)",
    )  # fmt: skip
    ours.add_argument(
        "--updates", type=_number, metavar="N",
        help="updates of each model (default: demo 400, on wikitext 1000; objectives and f2 2200; multi30k 1000; cures "
        "4080, two epochs)",
    )  # fmt: skip
    ours.add_argument(
        "--vocabulary", type=_number, metavar="N",
        help="number of sub-words, or of most frequent words (default: demo 8000, on wikitext 16000; objectives and "
        "cures 10000; multi30k 6000)",
    )  # fmt: skip
    ours.add_argument(
        "--dimension", type=_dimension, metavar="N",
        help="size of embeddings and layers, a multiple of 4 (default: 128; objectives 64)",
    )  # fmt: skip
    ours.add_argument(
        "--rare-fractions", type=_fractions, metavar='"F …"',
        help="of demo: fractions of the vocabulary that agg treats as rare, with a model for each (default: 0.2)",
    )  # fmt: skip
    ours.add_argument(
        "--model", dest="models", action="append", metavar='"NAME OPTION …"',
        help="of demo and objectives: a model with these options of fairseq-train. May be repeated, and replaces the "
        'entry\'s own models: --model "mle --criterion mle" --model "ul --criterion unlikelihood"',
    )  # fmt: skip
    ours.add_argument(
        "--topk", type=_number, metavar="K", help="of f2: sample from the K most probable tokens (default: 3)"
    )
    ours.add_argument(
        "--max-texts",
        type=_number,
        metavar="N",
        help="of f2 and cures: continue only the first N prefixes (default: f2 all, cures 300)",
    )
    return parser


def _stop(number: int, frame: object) -> None:
    """SIGTERM is handled as Ctrl-C: the trainings that were started are ended too."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _stop)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # tokens are of any script, terminals are not
    logging.disable(logging.INFO)  # importing fairseq turns on the debug messages of every library
    warnings.simplefilter("ignore")  # of fairseq's use of torch: nothing that a user could mend
    sys.exit(run("reproduce", main))
