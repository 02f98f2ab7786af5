"""Trains a model, or goes on with one that was interrupted."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

from agg_fairseq.errors import UserError
from agg_fairseq.files import write_json

from ..progress import follow
from .bench import ROOT, Bench, environment, failed
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
    """Sees that a folder holds no other model.

    Raises:
        UserError: it does.
    """
    path = bench.folder(model) / SETTINGS
    if path.is_file() and (found := json.loads(path.read_text(encoding="utf-8"))) != settings_of(bench, model):
        raise UserError(
            f"{path.parent} holds a model of other settings ({shlex.join(found)}); remove it or choose another --output"
        )


def train(bench: Bench, model: Model) -> None:
    """Trains a model unless that is done, or not meant at this scale; what it starts from is trained by then.

    Raises:
        UserError: the training failed.
    """
    if bench.scale not in model.scales:
        return
    folder, settings = bench.folder(model), settings_of(bench, model)
    if is_trained(bench, model):
        return
    arguments = [*settings, f"checkpoint.save_dir={folder}", *_start(bench, model)]
    if bench.dry:
        print(shlex.join(["bash", "scripts/train.sh", *arguments]))
        return
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / SETTINGS, settings)
    _run(bench, model, [str(ROOT / arguments[0]), *arguments[1:]])
    (folder / DONE).touch()


def settings_of(bench: Bench, model: Model) -> list[str]:
    """All that the training depends on, as arguments of scripts/train.sh.

    Where a folder of configurations has no size of the scale's name, the paper's is small enough.
    """
    sizes = ROOT / "configs" / Path(model.config).parent / "size"
    size = [f"size={bench.scale}"] if bench.scale != "paper" and (sizes / f"{bench.scale}.yaml").is_file() else []
    overrides = [*size, *model.overrides, *model.scaled.get(bench.scale, ()), *bench.overrides]
    return [f"configs/{model.config}", *overrides, f"task.data={prepare(bench, model.corpus).binarised}"]


def _start(bench: Bench, model: Model) -> list[str]:
    """The override that says which checkpoint it goes on from; made, where it has to be converted."""
    if model.start is None:
        return []
    checkpoint = best_checkpoint(bench, model.start)
    if model.convert and not bench.dry:
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
    command = [sys.executable, "-m", "scripts.training.train", *arguments]
    with open(log, "wb") as output:
        training = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment())
        try:
            follow(model.name, training.stdout, sys.stderr, copy=output)
        finally:
            training.stdout.close()
            status = training.wait()
    if status:
        raise failed(f"training {model.name}", status, log)
