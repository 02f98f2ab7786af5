"""Trains a model, or goes on with one that was interrupted."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

from agg_fairseq.errors import UserError, first_line
from agg_fairseq.files import write_json

from ..data.alone import alone
from ..progress import follow
from .bench import ROOT, Bench, failed
from .corpora import prepare
from .experiment import Model

DONE = "done"
SETTINGS = "settings.json"


def best_checkpoint(bench: Bench, model: Model) -> Path:
    """That of the lowest validation loss."""
    return bench.folder(model) / "checkpoint_best.pt"


def is_trained(bench: Bench, model: Model) -> bool:
    """Was it trained to the end?"""
    return (bench.folder(model) / DONE).is_file()


def check(bench: Bench, model: Model) -> None:
    """Sees that a folder holds no other model; one that has not come to a checkpoint is none.

    Raises:
        UserError: it does.
    """
    path = bench.folder(model) / SETTINGS
    if not path.is_file() or not (path.parent / "checkpoint_last.pt").is_file():
        return
    wanted, remedy = settings_of(bench, model), f"remove {path.parent} or choose another --output"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: unreadable ({first_line(error)}); {remedy}") from error
    if not isinstance(found, dict):
        raise UserError(f"{path}: found no settings; {remedy}")
    if found != wanted:
        other = "; ".join(f"{key}: {found.get(key)}" for key in wanted if found.get(key) != wanted[key])
        raise UserError(
            f"{path.parent} holds a model of other settings ({other}); remove it or choose another --output"
        )


def train(bench: Bench, model: Model) -> None:
    """Trains a model unless that is done, or not meant at this scale; what it starts from is trained by then.

    Another run that trains it is waited for.

    Raises:
        UserError: the training failed.
    """
    if bench.scale not in model.scales or is_trained(bench, model):
        return
    folder, corpus = bench.folder(model), prepare(bench, model.corpus)
    arguments = [
        str(ROOT / "configs" / model.config), *overrides_of(bench, model), f"task.data={corpus.binarised}",
        f"checkpoint.save_dir={folder}", *_start(bench, model),
    ]  # fmt: skip
    if bench.dry:
        print(shlex.join(["bash", str(ROOT / "scripts/train.sh"), *arguments]))
        return
    with alone(folder):
        if not is_trained(bench, model):
            write_json(folder / SETTINGS, settings_of(bench, model))
            _run(bench, model, arguments)
            (folder / DONE).touch()


def settings_of(bench: Bench, model: Model) -> dict[str, object]:
    """All that the training depends on."""
    corpus = None if bench.dry else prepare(bench, model.corpus).identity
    return {"config": model.config, "overrides": sorted(overrides_of(bench, model)), "corpus": corpus}


def overrides_of(bench: Bench, model: Model) -> list[str]:
    """Of the configuration, from the scale, the table and the command line.

    Where a folder of configurations has no size of the scale's name, the paper's is small enough.
    """
    sizes = ROOT / "configs" / Path(model.config).parent / "size"
    size = [f"size={bench.scale}"] if bench.scale != "paper" and (sizes / f"{bench.scale}.yaml").is_file() else []
    return [*size, *model.overrides, *model.scaled.get(bench.scale, ()), *bench.overrides]


def _start(bench: Bench, model: Model) -> list[str]:
    """The override that says which checkpoint it goes on from; made, where it has to be converted."""
    if model.start is None:
        return []
    checkpoint = best_checkpoint(bench, model.start)
    if model.convert:
        converted = bench.folder(model) / "converted.pt"
        if not converted.exists():
            data = prepare(bench, model.corpus).binarised
            bench.measure("convert-to-f2", "--path", checkpoint, "--data", data, "--output", converted)
        checkpoint = converted
    return [f"checkpoint.finetune_from_model={checkpoint}"]


def _run(bench: Bench, model: Model, arguments: list[str]) -> None:
    """Shows a line of progress instead of what it prints, which goes to the log."""
    bench.say(f"training {model.name}")
    log = bench.folder(model) / "output.log"
    command = [sys.executable, str(ROOT / "scripts/run.py"), "scripts.training.train", *arguments]
    with open(log, "wb") as output:
        # the lock of the folder is inherited: what is left of a run that was killed is waited for
        training = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, close_fds=False)
        try:
            follow(model.name, training.stdout, sys.stderr, copy=output)
        except BaseException:
            training.terminate()
            raise
        finally:
            training.stdout.close()
            status = training.wait()
    if status:
        raise failed(f"training {model.name}", status, log)
