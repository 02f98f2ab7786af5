"""fairseq-train in processes that end themselves with SIGKILL at a moment counted in events, not in seconds.

They are forked as in `forking.py`.
"""

import builtins
import json
import os
import re
import shutil
import signal
import socket
import sys
from dataclasses import dataclass

from tests.forking import processes

KILLED = -signal.SIGKILL
CHECKPOINT = re.compile(r"checkpoint.*\.pt(\.tmp)?")


@dataclass(frozen=True)
class Moment:
    """When a training is killed.

    Args:
        event: `update`: its gradients are there, its step is not taken; `validation`: a batch is about to be validated;
            `write`: a checkpoint file is being written; `renamed`: one has been renamed.
        number: which of them, in this process, from 1.
        bytes: of `write`, how many of them are in the file.
    """

    event: str
    number: int
    bytes: int = 0


def train(arguments, log, moment=None, timeout=1800):
    """One process of fairseq-train.

    Returns:
        Exit status; what it printed and logged is in `log`, and in `log`.targets the tokens of each update.
    """
    return _ended([_started(arguments, log, moment)], timeout)[0]


def train_by_two(arguments, log, moment=None, timeout=1800):
    """Two workers over gloo, both killed at the same moment: the exit statuses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shared = [
        "--distributed-backend", "gloo", "--ddp-backend", "legacy_ddp", "--distributed-no-spawn",
        "--distributed-world-size", "2", "--distributed-init-method", f"tcp://127.0.0.1:{port}",
        "--load-checkpoint-on-all-dp-ranks",
    ]  # fmt: skip
    workers = [
        _started([*arguments, *shared, "--distributed-rank", rank], f"{log}.{rank}", moment if rank == 0 else None)
        for rank in range(2)
    ]
    if moment is not None:  # only the first one writes: when it is gone, the other one goes
        workers[0].join(timeout)
        workers[1].kill()
    return _ended(workers, timeout)


def _started(arguments, log, moment):
    process = processes.Process(target=_train, args=([str(argument) for argument in arguments], str(log), moment))
    process.start()
    return process


def _ended(processes, timeout):
    for process in processes:
        process.join(timeout)
        if process.is_alive():
            process.kill()
            raise AssertionError(f"a training took more than {timeout} seconds")
    return [process.exitcode for process in processes]


def _train(arguments, log, moment):
    with open(log, "ab") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    sys.argv = ["fairseq-train", *arguments]
    from fairseq_cli.train import cli_main

    _record_targets(f"{log}.targets")
    if moment is not None:
        {"update": _at_update, "validation": _at_validation, "write": _at_write, "renamed": _at_rename}[moment.event](
            moment
        )
    cli_main()


def _record_targets(path):
    """Writes down which tokens each update has trained on: what a counter has to agree with."""
    from fairseq.tasks.fairseq_task import FairseqTask

    original = FairseqTask.train_step

    def train_step(task, sample, model, criterion, optimizer, update_num, ignore_grad=False, **options):
        if not ignore_grad:
            target = sample["target"]
            kept = target[target != task.target_dictionary.pad()].tolist()
            with open(path, "a") as file:
                file.write(json.dumps({"update": update_num, "tokens": kept}) + "\n")
        return original(task, sample, model, criterion, optimizer, update_num, ignore_grad, **options)

    FairseqTask.train_step = train_step


def _die():
    os.kill(os.getpid(), signal.SIGKILL)


def _at_update(moment):
    from fairseq.tasks.fairseq_task import FairseqTask

    _before(FairseqTask, "optimizer_step", moment.number)


def _at_validation(moment):
    from fairseq.tasks.fairseq_task import FairseqTask

    _before(FairseqTask, "valid_step", moment.number)


def _before(owner, name, number):
    original, left = getattr(owner, name), [number]

    def counted(*arguments, **options):
        left[0] -= 1
        if left[0] == 0:
            _die()
        return original(*arguments, **options)

    setattr(owner, name, counted)


def _at_rename(moment):
    left = [moment.number]
    for name in ("rename", "replace"):
        setattr(os, name, _dying_after(getattr(os, name), left))


def _dying_after(rename, left):
    def renamed(source, target, **options):
        rename(source, target, **options)
        left[0] -= CHECKPOINT.fullmatch(os.path.basename(target)) is not None
        if left[0] == 0:
            _die()

    return renamed


def _at_write(moment):
    original, left = builtins.open, [moment.number]

    def opened(path, mode="r", *arguments, **options):
        file = original(path, mode, *arguments, **options)
        if "w" in mode and CHECKPOINT.fullmatch(os.path.basename(str(path))):
            left[0] -= 1
            if left[0] == 0:
                return _DyingFile(file, moment.bytes)
        return file

    builtins.open = opened
    shutil._USE_CP_SENDFILE = False  # copies go through `write` too


class _DyingFile:
    """A file whose process dies as soon as it holds so many bytes, or is closed with fewer."""

    def __init__(self, file, size):
        self._file, self._left = file, size

    def write(self, data):
        data = memoryview(data).cast("B")
        self._file.write(data[: self._left])
        self._left -= len(data)
        if self._left <= 0:
            self._file.flush()
            _die()
        return len(data)

    def __getattr__(self, name):
        return getattr(self._file, name)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._file.flush()
        _die()
