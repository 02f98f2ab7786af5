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


def all_reduce(tensor: Tensor, operation: str) -> None:
    """Replaces a tensor by its "sum" or "max" over all workers, each of which must call this equally often."""
    if distributed.get_data_parallel_world_size() > 1:
        distributed.all_reduce(tensor, group=distributed.get_data_parallel_group(), op=operation)


def close_process_group_at_exit() -> None:
    """Ends gloo's threads before the process ends: fairseq leaves them running, and torch may then abort it."""

    def close() -> None:
        if torch.distributed.is_initialized():  # not yet closed by an earlier training of this process
            torch.distributed.destroy_process_group()

    if torch.distributed.is_initialized() and torch.distributed.get_backend() == "gloo":
        atexit.register(close)
