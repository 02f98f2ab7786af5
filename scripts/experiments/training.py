"""Trains models, several side by side, and resumes interrupted trainings."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from agg_fairseq.errors import UserError
from agg_fairseq.files import read_json_object, write_json

from ..command import ROOT
from ..data.files import only_run_in
from ..progress import follow
from .corpora import prepare
from .experiment import Model, Workspace, failed, say

DONE, SETTINGS, LAST = "done", "settings.json", "checkpoint_last.pt"

Training = tuple[Workspace, Model]


def best_checkpoint(workspace: Workspace, model: Model) -> Path:
    """The checkpoint with the lowest validation loss."""
    return workspace.folder(model) / "checkpoint_best.pt"


def is_trained(workspace: Workspace, model: Model) -> bool:
    """Whether the model was trained to the end, or there is nothing to train."""
    return model.corpus_only or (workspace.folder(model) / DONE).is_file()


def is_newer(output: Path, source: Path) -> bool:
    """Whether a file was made after the one that it is made from."""
    return output.exists() and output.stat().st_mtime >= source.stat().st_mtime


def overrides_of(workspace: Workspace, model: Model) -> list[str]:
    """Overrides of the configuration, from the scale, the table, the seed and the command line, in this order.

    Where a folder of configurations has no size of the scale's name, the paper's is small enough.
    """
    sizes = ROOT / "configs" / Path(model.config).parent / "size"
    has_size = workspace.scale != "paper" and (sizes / f"{workspace.scale}.yaml").is_file()
    size = workspace.scale if has_size else model.size
    seed = [] if workspace.seed is None else [f"common.seed={workspace.seed}"]
    scaled = model.scaled.get(workspace.scale, ())
    return [*([f"size={size}"] if size else []), *model.overrides, *scaled, *seed, *workspace.overrides]


def settings_of(workspace: Workspace, model: Model) -> dict[str, object]:
    """Everything that the training depends on."""
    corpus = None if workspace.dry else prepare(workspace, model.corpus).identity
    # of several values of an option, the last one counts, as for fairseq-hydra-train
    last = {override.partition("=")[0].lstrip("+"): override for override in overrides_of(workspace, model)}
    return {"config": model.config, "overrides": sorted(last.values()), "corpus": corpus}


def check_settings(workspace: Workspace, model: Model) -> None:
    """Checks that a folder holds no other model. A training that has not written a checkpoint does not count."""
    folder = workspace.folder(model)
    if not (folder / LAST).is_file() and not (folder / DONE).is_file():
        return
    wanted = settings_of(workspace, model)
    settings = read_json_object(folder / SETTINGS, f"the settings of the model in this folder; remove {folder}")
    if settings != wanted:
        other = "; ".join(f"{key}: {settings.get(key)}" for key in wanted if settings.get(key) != wanted[key])
        raise UserError(f"{folder} holds a model of other settings ({other}); remove it or choose another --output")


def train_all(trainings: Sequence[Training], jobs: int) -> None:
    """Trains all models that are not trained yet, up to `jobs` side by side, each after the model that it starts from.

    If one fails, no other is started, and those that run are waited for. In the list, a model comes after the one that
    it starts from.
    """
    todo = [(workspace, model) for workspace, model in trainings if workspace.scale in model.scales]
    for workspace, model in todo:
        prepare(workspace, model.corpus)
    running: set[subprocess.Popen[bytes]] = set()
    stop = threading.Event()
    futures: dict[Path, Future[None]] = {}

    def train(workspace: Workspace, model: Model) -> None:
        """Trains one model, unless another one has failed. If another run is training it, that is waited for."""
        folder, name = workspace.folder(model), workspace.name(model)
        if model.start and (before := futures.get(workspace.folder(model.start))):
            before.result()
        if stop.is_set():
            return
        if workspace.dry:
            print(shlex.join(_command(workspace, model)))
            return
        with only_run_in(folder) as lock:
            check_settings(workspace, model)  # again: another run may have trained here while this one waited
            if is_trained(workspace, model):
                return
            write_json(folder / SETTINGS, settings_of(workspace, model))
            say(f"training {name}")
            environment, log = dict(os.environ), folder / "output.log"
            if jobs > 1:
                environment["OMP_NUM_THREADS"] = str(max(1, len(os.sched_getaffinity(0)) // jobs))
            command = _command(workspace, model)
            with open(log, "wb") as output:
                # The process inherits the lock, so that the next run waits for what is left of one that was killed.
                training = subprocess.Popen(
                    command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, pass_fds=[lock], env=environment
                )
                running.add(training)
                with training.stdout:
                    follow(name, training.stdout, sys.stderr, copy=output)
                status = training.wait()
                running.discard(training)
            if status:
                stop.set()
                raise failed(f"training {name}", status, log)
            (folder / DONE).touch()

    with ThreadPoolExecutor(jobs) as pool:
        try:
            for workspace, model in todo:
                if not is_trained(workspace, model):
                    futures[workspace.folder(model)] = pool.submit(train, workspace, model)
                elif not model.corpus_only and not workspace.dry:
                    say(f"{workspace.name(model)} is trained already")
            for future in futures.values():
                future.result()  # raises its error
        except (KeyboardInterrupt, SystemExit):
            stop.set()
            for training in list(running):
                training.terminate()
            raise


def _command(workspace: Workspace, model: Model) -> list[str]:
    """The training command. The checkpoint that the training starts from is converted first, if it has to be."""
    folder, data = workspace.folder(model), prepare(workspace, model.corpus).binarized
    start = []
    if model.start is not None:
        checkpoint = best_checkpoint(workspace, model.start)
        if model.convert:
            converted = folder / "converted.pt"
            if workspace.dry:
                options = [checkpoint, "--data", data, "-o", converted]
                command = ROOT / ".venv" / "bin" / "agg-fairseq"
                print(shlex.join(map(str, [command, "convert-to-f2", *options])))
            elif not is_newer(converted, checkpoint):
                from agg_fairseq.checkpoints.fairseq_checkpoint import Checkpoint
                from agg_fairseq.f2.conversion import convert_to_f2

                convert_to_f2(Checkpoint(checkpoint, training_state=False), data, converted)
            checkpoint = converted
        start = [f"checkpoint.finetune_from_model={checkpoint}"]
    script, config = str(ROOT / "scripts" / "train.sh"), str(ROOT / "configs" / model.config)
    gpus = [] if workspace.gpus is None or workspace.scale == "tiny" else ["--gpus", str(workspace.gpus)]
    paths = [f"task.data={data}", f"checkpoint.save_dir={folder}", *start]
    return ["bash", script, config, *overrides_of(workspace, model), *paths, *gpus]
