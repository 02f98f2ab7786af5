"""Trainings by two real processes and by one, side by side, with a record of every update."""

import contextlib
import sys
from collections import Counter
from unittest.mock import patch

import torch

from tests.conftest import ROOT, called, options_of_workers
from tests.forking import processes

PACKAGE = str(ROOT / "agg_fairseq")
COLLECTIVES = "all_reduce all_gather broadcast reduce_scatter barrier all_gather_object".split()


@contextlib.contextmanager
def recorded(out_of_memory_at=None):
    """Yields a dictionary of what a training of this process then does:

    `updates`: of each, `weights`; `gradients`, as the optimizer gets them; `counts`, the
        criterion's buffers; and how many `micro_batches` there were, and `dummies` among them.
    `collectives`: (name, bytes, data type) of each collective that this package asked for, in
    order.
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
    """The record of `fairseq-train` in this process; in a micro-batch, counted from 1, the model
    may find no memory."""
    with recorded(out_of_memory_at) as record, pytorch_ddp_on_a_cpu():
        called("train", *arguments)
    return record


def trained_by_two(trainings, folder):
    """The records of two worker processes, which run all trainings in turn, by the names of the
    trainings; with "out of memory" at the end of a name, that happens to worker 1 in its sixth
    micro-batch."""
    workers = [
        processes.Process(target=_train_all, args=(trainings, folder, rank, options))
        for rank, options in enumerate(options_of_workers(folder))
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(1800)
        worker.kill()
    assert [worker.exitcode for worker in workers] == [0, 0]
    return {
        name: [torch.load(folder / f"{name}-{rank}.pt") for rank in range(2)] for name in trainings
    }


def _train_all(trainings, folder, rank, options):
    for name, arguments in trainings.items():
        fails = rank == 1 and name.endswith("out of memory")
        record = trained(*arguments, *options, out_of_memory_at=6 if fails else None)
        torch.save(record, folder / f"{name}-{rank}.pt")
