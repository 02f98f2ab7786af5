"""Trainings by two real processes and by one, side by side, with a record of every update.

Starting fairseq takes seconds, so two processes run many command lines in turn:

    python -m tests.workers FOLDER OPTIONS…

runs each training of FOLDER/trainings.json as `fairseq-train` does, with OPTIONS (those that make it a worker) added,
and leaves its record in FOLDER/<name>-<rank>.pt.
"""

import contextlib
import json
import sys
from collections import Counter
from pathlib import Path
from unittest.mock import patch

import torch

import agg_fairseq.criterions
import agg_fairseq.models  # noqa: F401 — registers them, also where the package was imported before fairseq
from tests.conftest import ROOT, called, two_processes

PACKAGE = str(ROOT / "agg_fairseq")
COLLECTIVES = ("all_reduce", "all_gather", "broadcast", "reduce_scatter", "barrier", "all_gather_object")


@contextlib.contextmanager
def recorded(out_of_memory_at=None):
    """Within, what a training of this process does is written down.

    Yields:
        `updates`: for each a dictionary: `weights`; `gradients`, as the optimizer gets them; `counts`, the criterion's
            buffers; `micro_batches`, how many there were, and `dummies`, how many of them were without data.
        `collectives`: (name, bytes, data type) of each collective that this package asked for, in order.
    """
    from fairseq.models import FairseqLanguageModel
    from fairseq.tasks import FairseqTask
    from fairseq.trainer import Trainer

    record, seen = {"updates": [], "collectives": []}, Counter()

    def update(original, trainer, *arguments, **options):
        before = seen.copy()
        result = original(trainer, *arguments, **options)
        parameters = dict(trainer.get_model().named_parameters())
        record["updates"].append({
            "weights": {name: parameter.detach().clone() for name, parameter in parameters.items()},
            "gradients": {name: parameter.grad.clone() for name, parameter in parameters.items()},
            "counts": {name: buffer.clone() for name, buffer in trainer.get_criterion().named_buffers()},
            **{name: seen[name] - before[name] for name in ("micro_batches", "dummies")},
        })  # fmt: skip
        return result

    def micro_batch(original, *arguments, ignore_grad=False, **options):
        seen.update(micro_batches=1, dummies=int(ignore_grad))
        return original(*arguments, ignore_grad=ignore_grad, **options)

    def forward(original, *arguments, **options):
        if seen["micro_batches"] == out_of_memory_at:
            raise RuntimeError("out of memory, says a test")
        return original(*arguments, **options)

    def collective(original, *arguments, **options):
        if _asked_for_by_the_package(sys._getframe(2)):
            tensor = arguments[0]
            size = tensor.numel() * tensor.element_size()
            record["collectives"].append((original.__name__, size, str(tensor.dtype)))
        return original(*arguments, **options)

    with contextlib.ExitStack() as stack:
        for owner, name, wrapper in [
            (Trainer, "train_step", update),
            (FairseqTask, "train_step", micro_batch),
            (FairseqLanguageModel, "forward", forward),
            *((torch.distributed, name, collective) for name in COLLECTIVES),
        ]:
            stack.enter_context(patch.object(owner, name, _around(getattr(owner, name), wrapper)))
        yield record


def _around(original, wrapper):
    return lambda *arguments, **options: wrapper(original, *arguments, **options)


def _asked_for_by_the_package(frame):
    """Is this frame the package's, or one of fairseq's helpers that the package calls?"""
    while "/fairseq/distributed/" in frame.f_code.co_filename:
        frame = frame.f_back
    return frame.f_code.co_filename.startswith(PACKAGE)


@contextlib.contextmanager
def pytorch_ddp_on_a_cpu():
    """fairseq names a device to PyTorch's wrapper, which takes none for a model on the CPU."""
    from fairseq.models import distributed_fairseq_model as module

    original = module.DistributedDataParallel

    def without_device(*, device_ids, output_device, **options):
        return original(**options)

    with patch.object(module, "DistributedDataParallel", without_device):
        yield


def trained(*arguments, out_of_memory_at=None):
    """The record of `fairseq-train` in this process.

    Args:
        arguments: of the command line.
        out_of_memory_at: in which micro-batch, counted from 1, the model finds no memory.
    """
    with recorded(out_of_memory_at) as record, pytorch_ddp_on_a_cpu():
        called("train", *arguments)
    return record


def trained_by_two(trainings, folder):
    """Records of two worker processes.

    Args:
        trainings: name → arguments of `fairseq-train`; a name that ends in "out of memory" says what happens to worker
            1 in its sixth micro-batch.
        folder: an empty one.

    Returns:
        name → the records of worker 0 and worker 1.
    """
    lines = {name: [str(argument) for argument in arguments] for name, arguments in trainings.items()}
    (folder / "trainings.json").write_text(json.dumps(lines))
    two_processes(folder, sys.executable, "-m", "tests.workers", folder)
    return {name: [torch.load(folder / f"{name}-{rank}.pt") for rank in range(2)] for name in trainings}


def main(folder, *options):
    rank = int(options[options.index("--distributed-rank") + 1])
    for name, arguments in json.loads((folder / "trainings.json").read_text()).items():
        fails = rank == 1 and name.endswith("out of memory")
        record = trained(*arguments, *options, out_of_memory_at=6 if fails else None)
        torch.save(record, folder / f"{name}-{rank}.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
