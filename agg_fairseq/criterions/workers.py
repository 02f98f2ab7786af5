"""Sums over the workers of a data-parallel training."""

from __future__ import annotations

from fairseq.distributed import utils as distributed
from torch import Tensor


def is_first_worker() -> bool:
    """Does this process write the files of a run?"""
    return distributed.get_data_parallel_world_size() == 1 or distributed.get_data_parallel_rank() == 0


def summed_over_workers(counts: Tensor) -> Tensor:
    """The counts, summed in place over all workers; every worker must call it equally often."""
    if distributed.get_data_parallel_world_size() > 1:
        distributed.all_reduce(counts, group=distributed.get_data_parallel_group())
    return counts
