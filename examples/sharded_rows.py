"""A vocabulary that outgrows one process: W sharded by rows over some processes, FSDP over the others.

    torchrun --nproc-per-node 4 examples/sharded_rows.py --tensor-parallel 2 TEXT
    python examples/sharded_rows.py TEXT                                          # in one process

Trains a small GRU language model with AGG on a text of words, on CPUs and in float64, which shows
that both commands print the same losses. The loss is computed by `chunked`: no process has the
logits of a whole batch, nor those of all tokens. At the end, each process prints its memory.
"""

import argparse
import os
import resource
from collections import Counter
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from agg_fairseq.functional import Gates, SmoothedLikelihood, chunked
from agg_fairseq.gating import AggGating

D, T, B = 64, 32, 16  # dimension, tokens per sequence, sequences per batch of all processes


class Model(nn.Module):
    """Its forward pass is the loss, since FSDP gathers the parameters of a module for that."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.embedding, self.rnn = nn.Embedding(vocabulary, D), nn.GRU(D, D, batch_first=True)
        self.head = nn.Linear(D, vocabulary, bias=False)

    def forward(self, inputs: Tensor, target: Tensor, gates: Gates | None) -> Tensor:
        """The mean loss in nats."""
        features, _ = self.rnn(self.embedding(inputs))  # B x T x D
        weight = self.head.weight
        if isinstance(weight, DTensor):  # the processes that share W have the same batch
            features = DTensor.from_local(features, weight.device_mesh, [Replicate()])
        loss, _ = chunked(SmoothedLikelihood(), features, weight, target, gates=gates)
        return loss / target.numel()


def main(arguments: list[str] | None = None) -> None:
    """Trains, and prints the loss of each update and the memory."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("text", type=Path)
    parser.add_argument("--tensor-parallel", type=int, default=1, help="processes that share W")
    parser.add_argument("--updates", type=int, default=20)
    options = parser.parse_args(arguments)

    words = options.text.read_text("utf-8").split()
    index = {word: number for number, (word, _) in enumerate(Counter(words).most_common())}
    text = torch.tensor([index[word] for word in words])
    torch.manual_seed(0)
    model, group, rank, shares, share = Model(len(index)).double(), None, 0, 1, 0
    if "WORLD_SIZE" in os.environ:
        dist.init_process_group("gloo")
        rank, tensor_parallel = dist.get_rank(), options.tensor_parallel
        sizes = dist.get_world_size() // tensor_parallel, tensor_parallel
        mesh = dist.init_device_mesh("cpu", sizes, mesh_dim_names=("dp", "tp"))
        plan = {"embedding": RowwiseParallel(input_layouts=Replicate()), "head": ColwiseParallel()}
        parallelize_module(model, mesh["tp"], plan)
        fully_shard(model, mesh=mesh["dp"])
        group, shares, share = mesh["dp"].get_group(), sizes[0], mesh["dp"].get_local_rank()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003, betas=(0.9, 0.98))
    # counts are summed over the processes with batches of their own
    gating = AggGating(len(index), rare_fraction=0.3, window=10, process_group=group)

    for update in range(options.updates):
        starts = torch.randint(len(text) - T, (B,))[share::shares]
        batch = torch.stack([text[start : start + T + 1] for start in starts])
        target = batch[:, 1:]
        loss = model(batch[:, :-1], target, gating(target))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        gating.commit_update()
        loss = loss.detach()
        if group is not None:
            dist.all_reduce(loss, group=group)
            loss /= shares
        if rank == 0:
            print(f"update {update + 1}: loss {loss.item():.12f} nats")

    state = [one for values in optimizer.state.values() for one in values.values()]
    held = [*model.parameters(), *(one.grad for one in model.parameters()), *state]
    local = [one.to_local() if isinstance(one, DTensor) else one for one in held]
    size, peak = (
        sum(one.nbytes for one in local),
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    )
    print(
        f"process {rank}: parameters, gradients and Adam's moments {size / 1e6:.1f} MB; "
        f"peak, with all of Python, {peak / 1e3:.0f} MB"
    )
    if group is not None:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
