"""Several workers: reductions, the end of their process group, and kinds of training that are refused."""

from __future__ import annotations

import atexit
from typing import Any

import torch
from fairseq.distributed import utils as distributed
from torch import Tensor

REFUSED_BACKENDS = {
    "fully_sharded": "leaves each worker a part of the output embedding",
    "slowmo": "lets the weights of the workers drift apart",
}


def check_ddp_backend(backend: Any) -> None:
    """Refuses the kinds of data-parallel training in which a worker does not hold the whole model.

    A criterion here uses the output embedding outside the model's forward pass, where a worker with sharded parameters
    has only its own shard; and its counts assume that all workers have the same weights.

    Args:
        backend: the value of --ddp-backend.

    Raises:
        ValueError: it is one of `REFUSED_BACKENDS`.
    """
    if str(backend) in REFUSED_BACKENDS:
        raise ValueError(
            f"found --ddp-backend {backend}, which {REFUSED_BACKENDS[str(backend)]}; "
            "expected --ddp-backend pytorch_ddp or legacy_ddp"
        )


def is_first_worker() -> bool:
    """Does this process write the files of a run?"""
    return distributed.get_data_parallel_world_size() == 1 or distributed.get_data_parallel_rank() == 0


def summed_over_workers(counts: Tensor) -> Tensor:
    """The counts, summed in place over all workers; every worker must call this equally often."""
    return _reduced(counts, "sum")


def found_by_any_worker(present: Tensor) -> Tensor:
    """1 where it is 1 on any worker, 0 elsewhere, in place; every worker must call this equally often.

    Args:
        present: uint8 of 0 and 1: an eighth of the size of counts, the smallest type that both gloo and NCCL reduce.
    """
    return _reduced(present, "max")


def _reduced(tensor: Tensor, operation: str) -> Tensor:
    if distributed.get_data_parallel_world_size() > 1:
        distributed.all_reduce(tensor, group=distributed.get_data_parallel_group(), op=operation)
    return tensor


def close_process_group_at_exit() -> None:
    """Ends gloo's threads before the process ends: fairseq leaves them running, and torch may then abort it."""

    def close() -> None:
        if torch.distributed.is_initialized():  # not yet closed by an earlier training of this process
            torch.distributed.destroy_process_group()

    if torch.distributed.is_initialized() and torch.distributed.get_backend() == "gloo":
        atexit.register(close)
