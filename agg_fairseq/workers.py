"""What the workers of a data-parallel training tell each other."""

from __future__ import annotations

import atexit

import torch
from fairseq.distributed import utils as distributed
from torch import Tensor


def is_first_worker() -> bool:
    """Does this process write the files of a run?"""
    return distributed.get_data_parallel_world_size() == 1 or distributed.get_data_parallel_rank() == 0


def close_process_group_at_exit() -> None:
    """Ends gloo's threads before the process: fairseq leaves them running, and torch may then abort it."""
    if torch.distributed.is_initialized() and torch.distributed.get_backend() == "gloo":
        atexit.register(_close_process_group)


def _close_process_group() -> None:
    if torch.distributed.is_initialized():  # not yet closed by an earlier training of this process
        torch.distributed.destroy_process_group()


def summed_over_workers(counts: Tensor) -> Tensor:
    """The counts, summed in place over all workers; every worker must call it equally often."""
    return _reduced(counts, "sum")


def found_by_any_worker(present: Tensor) -> Tensor:
    """1 where it is 1 on any worker, 0 elsewhere, in place; every worker must call it equally often.

    Args:
        present: uint8 of 0 and 1, an eighth of what counts would take, and the smallest that gloo and NCCL both reduce.
    """
    return _reduced(present, "max")


def _reduced(tensor: Tensor, operation: str) -> Tensor:
    if distributed.get_data_parallel_world_size() > 1:
        distributed.all_reduce(tensor, group=distributed.get_data_parallel_group(), op=operation)
    return tensor
