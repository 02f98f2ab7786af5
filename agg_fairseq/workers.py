"""Sums over the workers of a data-parallel training."""

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
        atexit.register(torch.distributed.destroy_process_group)


def summed_over_workers(counts: Tensor) -> Tensor:
    """The counts, summed in place over all workers; every worker must call it equally often."""
    if distributed.get_data_parallel_world_size() > 1:
        distributed.all_reduce(counts, group=distributed.get_data_parallel_group())
    return counts
