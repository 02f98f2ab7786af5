"""fairseq-train in processes that end themselves with SIGKILL at a moment counted in events, not in
seconds.

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


def train(arguments, log, moment=None):
    """The exit status of fairseq-train. What it printed is in `log`, and in `log`.targets the
    tokens of each update."""
    return _statuses((arguments, log, moment))[0]


def train_by_two(arguments, log, moment=None):
    """Two workers over gloo, both killed at the same moment: the exit statuses."""
    shared = [*arguments, "--ddp-backend", "legacy_ddp", "--load-checkpoint-on-all-dp-ranks"]
    first, second = ([*shared, *options] for options in options_of_workers(Path(log).parent))
    return _statuses((first, f"{log}.0", moment), (second, f"{log}.1", None))


def _statuses(*trainings):
    workers = [processes.Process(target=_train, args=training) for training in trainings]
    for worker in workers:
        worker.start()
    for worker in workers:
        if workers[0].exitcode:  # only the first one writes: when it is gone, the other one goes
            worker.kill()
        worker.join(1800)
        worker.kill()
    return [worker.exitcode for worker in workers]


def _train(arguments, log, moment):
    with open(log, "ab") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    sys.argv = ["fairseq-train", *map(str, arguments)]
    from fairseq.tasks import FairseqTask
    from fairseq_cli.train import cli_main

    _record_targets(FairseqTask, f"{log}.targets")
    if moment is not None:
        event, number = moment
        steps = {"update": "optimizer_step", "validation": "valid_step"}
        owner, name = (FairseqTask, steps[event]) if event in steps else (os, "replace")
        _die_at(number, owner, name, after=event == "renamed")
    cli_main()


def _record_targets(task_class, path):
    """Writes down which tokens each update has trained on: what a counter has to agree with."""
    original = task_class.train_step

    def train_step(
        task, sample, model, criterion, optimizer, update_num, ignore_grad=False, **options
    ):
        if not ignore_grad:
            target = sample["target"]
            tokens = target[target != task.target_dictionary.pad()].tolist()
            with open(path, "a") as file:
                file.write(json.dumps({"update": update_num, "tokens": tokens}) + "\n")
        return original(
            task, sample, model, criterion, optimizer, update_num, ignore_grad, **options
        )

    task_class.train_step = train_step


def _die_at(number, owner, name, after):
    """Makes the process kill itself at a call of a function; of `os.replace`, only calls for
    checkpoints count."""
    original, left = getattr(owner, name), number

    def counted(*arguments, **options):
        nonlocal left
        left -= (
            owner is not os
            or re.fullmatch(r"checkpoint.*\.pt", os.path.basename(arguments[1])) is not None
        )
        if left == 0 and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*arguments, **options)
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, counted)
