"""fairseq-train in processes that end themselves with SIGKILL at a moment counted in events, not in seconds.

They are forked as in `forking.py`. A moment is a pair of an event and its number, from 1:

    update      the gradients are there, the step is not taken
    validation  a batch is about to be validated
    written     a checkpoint is in its temporary file, which is about to be renamed
    renamed     that was renamed
"""

import json
import os
import re
import signal
import sys
from pathlib import Path

from tests.conftest import options_of_workers
from tests.forking import processes

KILLED = -signal.SIGKILL
CHECKPOINT = re.compile(r"checkpoint.*\.pt")


def train(arguments, log, moment=None, timeout=1800):
    """The exit status of fairseq-train. What it printed is in `log`, and in `log`.targets the tokens of each update."""
    return _ended([_started(arguments, log, moment)], timeout)[0]


def train_by_two(arguments, log, moment=None, timeout=1800):
    """Two workers over gloo, both killed at the same moment: the exit statuses."""
    shared = ["--ddp-backend", "legacy_ddp", "--load-checkpoint-on-all-dp-ranks"]
    workers = [
        _started([*arguments, *shared, *options], f"{log}.{rank}", moment if rank == 0 else None)
        for rank, options in enumerate(options_of_workers(Path(log).parent))
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
    from fairseq.tasks import FairseqTask
    from fairseq_cli.train import cli_main

    _record_targets(FairseqTask, f"{log}.targets")
    if moment is not None:
        event, number = moment
        left = [number]
        if event in ("update", "validation"):
            _die_at(left, FairseqTask, {"update": "optimizer_step", "validation": "valid_step"}[event])
        else:
            for name in ("rename", "replace"):
                _die_at(left, os, name, counts=_is_of_a_checkpoint, before=event == "written")
    cli_main()


def _record_targets(task_class, path):
    """Writes down which tokens each update has trained on: what a counter has to agree with."""
    original = task_class.train_step

    def train_step(task, sample, model, criterion, optimizer, update_num, ignore_grad=False, **options):
        if not ignore_grad:
            target = sample["target"]
            kept = target[target != task.target_dictionary.pad()].tolist()
            with open(path, "a") as file:
                file.write(json.dumps({"update": update_num, "tokens": kept}) + "\n")
        return original(task, sample, model, criterion, optimizer, update_num, ignore_grad, **options)

    task_class.train_step = train_step


def _is_of_a_checkpoint(source, target, **options):
    return CHECKPOINT.fullmatch(os.path.basename(target)) is not None


def _die_at(left, owner, name, counts=lambda *arguments, **options: True, before=True):
    """Makes the process kill itself before or after a call of a function, when so many of the calls have counted."""
    original = getattr(owner, name)

    def counted(*arguments, **options):
        left[0] -= counts(*arguments, **options)
        is_last = left[0] == 0
        if is_last and before:
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*arguments, **options)
        if is_last:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, counted)
