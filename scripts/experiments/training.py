"""Trains models, several side by side, and resumes interrupted trainings."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path

from agg_fairseq.errors import UserError, first_line
from agg_fairseq.files import write_json

from ..data.locks import only_run_in
from ..progress import follow
from .corpora import prepare
from .experiment import ROOT, Model, Workspace, failed, say

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
    size = [f"size={workspace.scale}"] if has_size else []
    seed = [] if workspace.seed is None else [f"common.seed={workspace.seed}"]
    return [*size, *model.overrides, *model.scaled.get(workspace.scale, ()), *seed, *workspace.overrides]


def settings_of(workspace: Workspace, model: Model) -> dict[str, object]:
    """Everything that the training depends on."""
    corpus = None if workspace.dry else prepare(workspace, model.corpus).identity
    last = {override.partition("=")[0].lstrip("+"): override for override in overrides_of(workspace, model)}
    return {"config": model.config, "overrides": sorted(last.values()), "corpus": corpus}


def check_settings(workspace: Workspace, model: Model) -> None:
    """Checks that a folder holds no other model. A training that has not written a checkpoint does not count.

    Raises:
        UserError: it does.
    """
    folder = workspace.folder(model)
    path = folder / SETTINGS
    if not (folder / LAST).is_file() and not (folder / DONE).is_file():
        return
    wanted = settings_of(workspace, model)
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(
            f"{path}: unreadable ({first_line(error)}); expected the settings of the model in this folder; remove "
            f"{folder} or choose another --output"
        ) from error
    if not isinstance(found, dict):
        raise UserError(f"{path}: found no settings; remove {folder} or choose another --output")
    with_all = {**wanted, "overrides": sorted(overrides_of(workspace, model))}  # as version 0.2.0 writes them
    if found not in (wanted, with_all):
        other = "; ".join(f"{key}: {found.get(key)}" for key in wanted if found.get(key) != wanted[key])
        raise UserError(f"{folder} holds a model of other settings ({other}); remove it or choose another --output")


def train_all(trainings: Sequence[Training], jobs: int) -> None:
    """Trains all models that are not trained yet, up to `jobs` side by side, each after the model that it starts from.

    If one fails, no other is started, and those that run are waited for.

    Raises:
        UserError: a training failed.
    """
    todo = []
    for workspace, model in trainings:
        if workspace.scale not in model.scales:
            continue
        prepare(workspace, model.corpus)
        if model.corpus_only:
            continue
        if is_trained(workspace, model) and not workspace.dry:
            say(f"{workspace.name(model)} is trained already")
        elif not is_trained(workspace, model):
            todo.append((workspace, model))
    running: set[subprocess.Popen[bytes]] = set()
    stop = threading.Event()
    with ThreadPoolExecutor(jobs) as pool:
        try:
            while todo:
                waiting = {workspace.folder(model) for workspace, model in todo}
                ready = [
                    (workspace, model)
                    for workspace, model in todo
                    if model.start is None or workspace.folder(model.start) not in waiting
                ]
                futures = [pool.submit(_train, *training, jobs, running, stop) for training in ready]
                wait(futures, return_when=FIRST_EXCEPTION)
                if not all(future.done() for future in futures):  # one has failed
                    stop.set()
                for future in futures:
                    future.result()  # raises its error
                todo = [training for training in todo if training not in ready]
        except (KeyboardInterrupt, SystemExit):
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            for training in list(running):
                training.terminate()
            raise


def _train(
    workspace: Workspace, model: Model, jobs: int, running: set[subprocess.Popen[bytes]], stop: threading.Event
) -> None:
    """Trains one model, unless another one has failed. If another run is training it, that is waited for.

    Args:
        workspace: where the model is trained.
        model: the model.
        jobs: number of trainings side by side, which share the cores.
        running: gets the process for as long as it runs.
        stop: is set if the training fails; if it is set before, nothing is started.
    """
    if stop.is_set():
        return
    folder = workspace.folder(model)
    if workspace.dry:
        print(shlex.join(["bash", str(ROOT / "scripts" / "train.sh"), *_arguments(workspace, model)]))
        return
    with only_run_in(folder) as lock:
        check_settings(workspace, model)  # again: another run may have trained here while this one waited
        if is_trained(workspace, model):
            return
        write_json(folder / SETTINGS, settings_of(workspace, model))
        say(f"training {workspace.name(model)}")
        environment, log = dict(os.environ), folder / "output.log"
        if jobs > 1:
            environment["OMP_NUM_THREADS"] = str(max(1, len(os.sched_getaffinity(0)) // jobs))
        arguments = _arguments(workspace, model)
        command = [sys.executable, str(ROOT / "scripts" / "run.py"), "scripts.training.train", *arguments]
        with open(log, "wb") as output:
            # The process inherits the lock, so that the next run waits for what is left of one that was killed.
            training = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, pass_fds=[lock], env=environment
            )
            running.add(training)
            try:
                follow(workspace.name(model), training.stdout, sys.stderr, copy=output, redraw=jobs == 1)
            except BaseException:
                training.terminate()
                raise
            finally:
                training.stdout.close()
                status = training.wait()
                running.discard(training)
        if status:
            stop.set()
            raise failed(f"training {workspace.name(model)}", status, log)
        (folder / DONE).touch()


def _arguments(workspace: Workspace, model: Model) -> list[str]:
    """Arguments of train.sh. The checkpoint that the training starts from is converted first, if it has to be."""
    folder, data = workspace.folder(model), prepare(workspace, model.corpus).binarized
    start = []
    if model.start is not None:
        checkpoint = best_checkpoint(workspace, model.start)
        if model.convert:
            converted = folder / "converted.pt"
            if workspace.dry:
                options = ["--path", checkpoint, "--data", data, "--output", converted]
                command = ROOT / ".venv" / "bin" / "agg-fairseq"
                print(shlex.join(map(str, [command, "convert-to-f2", *options])))
            elif not is_newer(converted, checkpoint):
                from agg_fairseq.checkpoints.fairseq_checkpoint import Checkpoint
                from agg_fairseq.f2.conversion import convert_to_f2

                convert_to_f2(Checkpoint(checkpoint, training_state=False), data, converted)
            checkpoint = converted
        start = [f"checkpoint.finetune_from_model={checkpoint}"]
    return [
        str(ROOT / "configs" / model.config), *overrides_of(workspace, model), f"task.data={data}",
        f"checkpoint.save_dir={folder}", *start, *([] if workspace.gpus is None else ["--gpus", str(workspace.gpus)]),
    ]  # fmt: skip
