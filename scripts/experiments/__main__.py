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

Our own experiments (demo, objectives, f2, multi30k, cures, second-moments, large-vocabulary, fine-tuning) have one
size, and each has an output folder of its own.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from agg_fairseq.errors import UserError

from ..command import Parser, run, whole_number
from .entries import EXPERIMENTS, OURS
from .experiment import SCALES, Experiment, Model, Workspace, check_path
from .training import check_settings, train_all

OWN = ("size", "task.data", "checkpoint.save_dir", "checkpoint.finetune_from_model", "common.seed")
"""What the command line sets by options of its own, or a table does."""

Planned = tuple[str, Experiment, list[Workspace]]  # the name of an entry, an experiment of it, a workspace per seed


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    options = _parser().parse_intermixed_args(arguments)
    if options.list:
        for key, experiment in EXPERIMENTS.items():
            quoted = ", ".join(method.label for method in experiment.methods if method.model is None)
            print(f"{key:<16} {experiment.title}{f' (quoted: {quoted})' if quoted else ''}")
        for key, entry in OURS.items():
            print(f"{key:<16} ours: {entry.title}")
        return
    plan = _plan(options)
    trainings: dict[Path, tuple[Workspace, Model]] = {}
    for _, experiment, workspaces in plan:
        for workspace, model in experiment.trainings(workspaces):
            check_path(workspace.output)
            trainings.setdefault(workspace.folder(model), (workspace, model))
    if not options.dry_run:
        for training in trainings.values():
            check_settings(*training)
    if not options.show:
        train_all(list(trainings.values()), 1 if options.dry_run else options.jobs)
    if options.dry_run:
        from .cost import NOT_RUN, described

        for planned in plan:
            for line in described(*planned, options.gpus or 1):
                print(f"# {line}")
        if options.scale == "paper" and any(key in EXPERIMENTS for key, *_ in plan):
            print(f"# {NOT_RUN}")
        return
    from .tables import show

    failed = []
    for number, (key, experiment, workspaces) in enumerate(plan):
        if number:
            print()
        try:
            show(workspaces, key, experiment)
        except UserError as error:
            if len(plan) == 1:
                raise
            print(f"reproduce: {key}: error: {' '.join(str(error).split())}", file=sys.stderr)  # the others are shown
            failed.append(key)
    if failed:
        raise UserError(f"found errors in {', '.join(failed)}, see above; correct them and run it again")


def _plan(options: argparse.Namespace) -> list[Planned]:
    keys = list(dict.fromkeys(word for word in options.words if "=" not in word))
    overrides = tuple(word for word in options.words if "=" in word)
    if not keys:
        raise UserError("found no ENTRY; expected some of those that --list prints, such as agg-3")
    for key in keys:
        if key not in EXPERIMENTS and key not in OURS:
            raise UserError(f"found the entry {key!r}; expected one that --list prints, or key=value")
    for override in overrides:
        if override.lstrip("+").partition("=")[0] in OWN:
            raise UserError(f"found {override!r}; expected --scale, --data, --output or --seeds for that")
    data = options.data and options.data.absolute()
    if data is not None and not data.is_dir():
        raise UserError(f"--data: found no folder {options.data}; expected one of text, or one that was prepared")
    own = ("updates", "vocabulary", "new_text")
    given = {name: getattr(options, name) for name in own if getattr(options, name) is not None}
    if options.new_text and keys != ["fine-tuning"]:
        raise UserError(f"--new-text: found it with {', '.join(keys)}; expected fine-tuning alone")
    if given and OURS.keys().isdisjoint(keys):
        raise UserError(f"--{min(given)}: found it with {', '.join(keys)}, which cannot take it")
    for file in options.new_text or ():
        if not file.is_file():
            raise UserError(f"--new-text: found no file {file}; expected the training, validation and test text")
    seeds, plan = list(dict.fromkeys(options.seeds or [None])), []
    shared = Workspace(
        scale=options.scale,
        output=options.output or Path("runs/reproduction") / options.scale,
        data=data,
        overrides=overrides,
        train=not options.show,
        dry=options.dry_run,
        gpus=options.gpus,
    )
    for key in keys:
        scale, output = shared.scale, shared.output
        experiments = OURS[key].build(data=data, **given) if key in OURS else [EXPERIMENTS[key]]
        if key in OURS:
            scale, output = "tiny", options.output or Path(OURS[key].output)
            if len(keys) > 1 and options.output is not None:
                output = options.output / key  # each has a corpus of its own
        workspaces = []
        for seed in seeds:
            models = f"seed-{seed}" if len(seeds) > 1 else ""
            workspace = replace(shared, scale=scale, output=output.absolute(), seed=seed, models=models, signatures={})
            workspaces.append(workspace)
        plan += [(key, experiment, workspaces) for experiment in experiments]
    return plan


def _parser() -> argparse.ArgumentParser:
    parser = Parser("reproduce.sh", __doc__)
    parser.add_argument(
        "words", nargs="*", metavar="ENTRY", help="such as agg-3, agps-figure-2, demo; several may be given; --list "
        "prints all. KEY=VALUE changes the configuration of every training",
    )  # fmt: skip
    parser.add_argument("--list", action="store_true", help="print all entries")
    parser.add_argument("--scale", choices=SCALES, default="paper", help="scale of tables and figures (default: paper)")
    parser.add_argument(
        "--data", type=Path, metavar="DIR",
        help="folder of {train,valid,test}.{en,de} or wiki.{train,valid,test}.tokens, or one made by a prepare.sh "
        "(default: the documentation of Python at tiny and for the demo, otherwise data/…, downloaded if missing)",
    )  # fmt: skip
    parser.add_argument(
        "--output", type=Path, metavar="DIR",
        help="output folder (default: runs/reproduction/SCALE; runs/demo, … for our own)",
    )  # fmt: skip
    parser.add_argument(
        "--seeds", "--seed", dest="seeds", type=whole_number, nargs="+", metavar="N",
        help="random seeds of all models (default: that of the configurations, 1). With several seeds, the models of "
        "each are in a folder seed-N, and tables have mean ± standard deviation",
    )  # fmt: skip
    parser.add_argument(
        "--jobs", type=whole_number, default=1, metavar="N",
        help="trainings at the same time, sharing the cores (default: 1)",
    )  # fmt: skip
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--show", action="store_true", help="train nothing: measure and print the existing models")
    mode.add_argument(
        "--dry-run", action="store_true",
        help="print the commands of missing trainings and what they take (tokens per update, GPU hours, disk space), "
        "and start none; the GPUs need not be there",
    )  # fmt: skip
    parser.add_argument(
        "--gpus", type=whole_number, metavar="N",
        help="number of GPUs of each training (default: all that are visible; 1 with --dry-run)",
    )  # fmt: skip
    ours = parser.add_argument_group("options of our own experiments")
    ours.add_argument(
        "--updates", type=whole_number, metavar="N",
        help="updates of each model (default: demo and multi30k 1000; objectives and f2 2200; cures 16320, eight "
        "epochs; second-moments and large-vocabulary 4080; fine-tuning 6120, and 1000 on the new text)",
    )  # fmt: skip
    ours.add_argument(
        "--vocabulary", type=whole_number, metavar="N",
        help="number of sub-words, or of most frequent words (default: demo 4000, with --data 16000; multi30k 6000; "
        "fine-tuning 8000; f2 and large-vocabulary 40000; the others 10000)",
    )  # fmt: skip
    ours.add_argument(
        "--new-text", type=Path, nargs=3, metavar=("TRAIN", "VALID", "TEST"),
        help="what fine-tuning goes on with (default: the documentation of Python)",
    )  # fmt: skip
    return parser


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: the trainings it started are ended too
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # tokens are of any script, terminals are not
    logging.disable(logging.INFO)  # importing fairseq turns on the debug messages of every library
    warnings.simplefilter("ignore")  # of fairseq's use of torch: nothing that a user could change
    sys.exit(run("reproduce", main))
