"""The machines and processes that a training runs on, and how the tokens of an update are split over them."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from agg_fairseq.errors import UserError

PORTS = range(20000, 60000)


@dataclass(frozen=True)
class Cluster:
    """Machines with the same number of processes each.

    Args:
        nodes: number of machines.
        rank: of this machine, from 0.
        master: HOST:PORT of the first one; None for a single machine.
    """

    nodes: int = 1
    rank: int = 0
    master: str | None = None


def cluster_of(nodes: int | None, rank: int | None, master: str | None, environment: Mapping[str, str]) -> Cluster:
    """The machines of --nodes, --node-rank and --master; without these options, those of the Slurm job step.

    Raises:
        UserError: the options do not go together; or Slurm starts the command on a machine more than once, or not on
            all of them.
    """
    given = [option is not None for option in (nodes, rank, master)]
    if not any(given):
        return _of_slurm(environment)
    if not all(given) or not 0 <= rank < nodes or ":" not in master:
        raise UserError(
            f"found --nodes {nodes} --node-rank {rank} --master {master}; expected all three: the number of machines, "
            "which of them this is, from 0, and HOST:PORT of the first one"
        )
    return Cluster(nodes, rank, master)


def _of_slurm(environment: Mapping[str, str]) -> Cluster:
    """`srun --ntasks-per-node=1` starts a step of the job and sets its variables; sbatch and salloc only the job's."""
    if "SLURM_STEP_NUM_NODES" not in environment:
        nodes = int(environment.get("SLURM_NNODES", 1))
        if nodes > 1:
            raise UserError(
                f"found a Slurm job of {nodes} machines, and this command on one of them; expected it started by srun: "
                "srun --ntasks-per-node=1 --cpus-per-task=$SLURM_CPUS_ON_NODE --gpus-per-node=N bash scripts/train.sh …"
            )
        return Cluster()
    nodes, tasks = int(environment["SLURM_STEP_NUM_NODES"]), int(environment["SLURM_STEP_NUM_TASKS"])
    if tasks != nodes:
        raise UserError(f"found {tasks} tasks of srun on {nodes} machine(s); expected one on each: --ntasks-per-node=1")
    if nodes == 1:
        return Cluster()
    # Slurm abbreviates the list, as node[01-16].
    command = ["scontrol", "show", "hostnames", environment["SLURM_STEP_NODELIST"]]
    hosts = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout.split()
    if not hosts:
        raise UserError(f"found no machine by {' '.join(command)}; expected those of the Slurm step, or --nodes, …")
    port = PORTS[int(environment["SLURM_JOB_ID"]) % len(PORTS)]
    return Cluster(nodes, int(environment["SLURM_NODEID"]), f"{hosts[0]}:{port}")


def processes_of(wanted: int | None, on_cpu: bool, dry: bool = False) -> int:
    """Number of processes of this machine: `wanted`, or one per GPU that is visible (on a CPU, one).

    Args:
        wanted: the value of --gpus.
        on_cpu: whether the training runs on a CPU.
        dry: whether nothing will be started: the GPUs need not be there.

    Raises:
        UserError: there is no GPU, or there are fewer than wanted.
    """
    if wanted is not None and wanted < 1:
        raise UserError(f"--gpus: found {wanted}; expected at least 1")
    if on_cpu:
        return wanted or 1
    import torch

    visible = torch.cuda.device_count()
    if dry:
        return wanted or visible or 1
    if not visible:
        raise UserError("found no GPU; expected at least one at this size; size=tiny is for a CPU")
    if (wanted or 1) > visible:
        raise UserError(f"--gpus: found {wanted}, and {visible} GPUs; expected no more than there are")
    return wanted or visible


@dataclass(frozen=True)
class Batches:
    """What each process reads for an update.

    Args:
        processes: number of processes side by side.
        max_tokens: largest number of tokens in a batch.
        update_freq: number of batches of a process per update.
    """

    processes: int
    max_tokens: int
    update_freq: int

    @property
    def tokens(self) -> int:
        """Largest number of tokens in an update."""
        return self.processes * self.max_tokens * self.update_freq


def split(tokens: int, processes: int, largest: int, block: int = 1) -> Batches:
    """Batches whose tokens per update are as near as possible to a given number, whatever the number of processes.

    An update has as few batches as fit into `largest`, or up to twice as many smaller ones if these come nearer.

    Args:
        tokens: of an update.
        processes: number of processes side by side.
        largest: tokens that a process can read at once.
        block: the tokens of a batch are a multiple of it: the length of a language model's sequences.
    """
    fewest = max(1, -(-tokens // (processes * largest)))
    candidates = []
    for number in range(fewest, 2 * fewest + 1):
        blocks = min(round(tokens / (processes * number) / block), largest // block)
        candidates.append(Batches(processes, block * max(1, blocks), number))
    return min(candidates, key=lambda batches: (abs(batches.tokens - tokens), batches.update_freq))
