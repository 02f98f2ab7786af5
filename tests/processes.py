"""Functions run by several processes over gloo."""

import os

import torch
import torch.distributed as dist

from tests import forking  # noqa: F401 — what the fork server imports beforehand


def run_processes(function, processes, folder, *arguments):
    """Calls it in each of them, and raises what one of them raises."""
    torch.multiprocessing.start_processes(
        _work, (function, processes, str(folder), arguments), processes, start_method="forkserver"
    )


def _work(rank, function, processes, folder, arguments):
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
    os.environ |= {"WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes)}
    store = dist.FileStore(os.path.join(folder, "store"), processes)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=processes)
    function(*arguments)
    dist.destroy_process_group()
