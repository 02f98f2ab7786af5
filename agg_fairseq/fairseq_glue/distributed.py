"""Several workers: reductions, the end of their process group, and kinds of training that are refused."""

import atexit

import torch
from fairseq.distributed import utils as distributed
from torch import Tensor

REFUSED_BACKENDS = {
    "fully_sharded": "leaves each worker a part of the output embedding",
    "slowmo": "lets the weights of the workers drift apart",
}
"""Values of --ddp-backend under which a worker does not hold the whole model, the same as every other worker."""


def check_ddp_backend(backend: str) -> None:
    """Raises ValueError for a --ddp-backend of `REFUSED_BACKENDS`: W is used outside of the model's forward pass."""
    if str(backend) in REFUSED_BACKENDS:
        raise ValueError(
            f"found --ddp-backend {backend}, which {REFUSED_BACKENDS[str(backend)]}; "
            "expected --ddp-backend pytorch_ddp or legacy_ddp"
        )


def sum_over_workers(counts: Tensor) -> Tensor:
    """The counts, summed in place over all workers; every worker must call this equally often."""
    return _reduced(counts, "sum")


def max_over_workers(present: Tensor) -> Tensor:
    """uint8, 1 where it is 1 on any worker, else 0, in place; every worker must call this equally often."""
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
