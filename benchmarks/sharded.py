"""The loss with W sharded by rows over two processes: CPU time and peak memory of the process that
takes more, as fractions of those of one process with the whole of W.

    OMP_NUM_THREADS=1 python -m benchmarks.sharded [--size V,N,D] [--repeats 2]

*Alone*: two processes at once, each with half of W as a vocabulary of its own, that exchange
nothing: the best that cores with one memory can reach. `agg/mle` is within a row.
"""

import argparse
import os
import statistics
import time
from functools import partial

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

from agg_fairseq.functional import TrainingLoss
from agg_fairseq.gating import AggGating, Gating

from .measuring import machine, new_processes, peak_mib, row, size, zipf


def measure(
    kind: str, vocabulary: int, number: int, width: int, repeats: int, rank: int
) -> list[float]:
    """The seconds and MiB of plain likelihood, and those of AGG."""
    torch.manual_seed(0)
    whole = torch.randn(vocabulary, width) * width**-0.5
    features, target = torch.randn(number, width), zipf(vocabulary, number)
    if kind == "sharded":
        os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": "29511"}
        dist.init_process_group("gloo", rank=rank, world_size=2)
        mesh = dist.init_device_mesh("cpu", (2,))
        whole = distribute_tensor(whole, mesh, [Shard(0)])
        features = DTensor.from_local(features, mesh, [Replicate()])
    weight, features = torch.nn.Parameter(whole), features.requires_grad_()
    found = []
    for rule in (Gating(vocabulary), AggGating(vocabulary, rare_fraction=0.2, window=100)):

        def step(rule: Gating = rule) -> None:
            TrainingLoss()(features, weight, target, gates=rule(target)).loss.backward()
            rule.commit_update()

        def clear() -> None:
            features.grad = weight.grad = None

        mib, times = peak_mib(step, clear, "cpu"), []
        for _ in range(repeats):
            clear()
            before = time.process_time()
            step()
            times.append(time.process_time() - before)
        clear()
        found += [statistics.median(times), mib]
    if kind == "sharded":
        dist.destroy_process_group()
    return found


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", type=size, metavar="V,N,D", default=(267_744, 2048, 256))
    parser.add_argument("--repeats", type=int, default=2)
    options = parser.parse_args()
    results: dict[str, list[float]] = {}
    vocabulary, number, width = options.size
    for kind, here in (("whole", vocabulary), ("alone", vocabulary // 2), ("sharded", vocabulary)):
        processes = 1 if kind == "whole" else 2
        measure_rank = partial(measure, kind, here, number, width, options.repeats)
        with new_processes(processes) as pool:
            measured = list(pool.map(measure_rank, range(processes)))
        results[kind] = [max(both) for both in zip(*measured, strict=True)]
    print(f"{machine('cpu')}, V = {vocabulary:,}, N = {number:,}, D = {width}\n")
    print("| | mle: time | memory | agg: time | memory | agg/mle |\n|:--|--:|--:|--:|--:|--:|")
    for kind, (mle, mle_mib, agg, agg_mib) in results.items():
        pairs = zip((mle, mle_mib, agg, agg_mib), results["whole"], strict=True)
        shares = [one / whole for one, whole in pairs]
        print(row([kind, *(f"{share:.2f}" for share in (*shares, agg / mle))]))


if __name__ == "__main__":
    main()
