"""The machines that a training runs on: as the options say, or Slurm, or this one alone."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from agg_fairseq.errors import UserError

PORTS = range(20000, 60000)


@dataclass(frozen=True)
class Cluster:
    """Machines with the same number of processes each.

    Args:
        nodes: machines.
        rank: of this one.
        master: HOST:PORT of the first one; None on one machine.
    """

    nodes: int = 1
    rank: int = 0
    master: str | None = None


def cluster_of(nodes: int | None, rank: int | None, master: str | None, environment: Mapping[str, str]) -> Cluster:
    """The machines of --nodes, --node-rank and --master; without them, those of the Slurm job step.

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
                "srun --ntasks-per-node=1 bash scripts/train.sh …"
            )
        return Cluster()
    nodes, tasks = int(environment["SLURM_STEP_NUM_NODES"]), int(environment["SLURM_STEP_NUM_TASKS"])
    if tasks != nodes:
        raise UserError(f"found {tasks} tasks of srun on {nodes} machine(s); expected one on each: --ntasks-per-node=1")
    if nodes == 1:
        return Cluster()
    host = _first_host(environment["SLURM_STEP_NODELIST"])
    port = PORTS[int(environment["SLURM_JOB_ID"]) % len(PORTS)]
    return Cluster(nodes, int(environment["SLURM_NODEID"]), f"{host}:{port}")


def _first_host(nodes: str) -> str:
    """Of a list as Slurm abbreviates it, node[01-16]."""
    command = ["scontrol", "show", "hostnames", nodes]
    hosts = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout.split()
    if not hosts:
        raise UserError(f"found no machine by {' '.join(command)}; expected those of the Slurm step, or --nodes, …")
    return hosts[0]


def processes_of(wanted: int | None, on_cpu: bool) -> int:
    """How many processes this machine runs: one per GPU that is visible, or `wanted`.

    Raises:
        UserError: there is no GPU, or there are fewer than wanted.
    """
    if wanted is not None and wanted < 1:
        raise UserError(f"--gpus: found {wanted}; expected at least 1")
    if on_cpu:
        return wanted or 1
    visible = torch.cuda.device_count()
    if not visible:
        raise UserError("found no GPU; expected at least one at this size; size=tiny is for a CPU")
    if (wanted or 1) > visible:
        raise UserError(f"--gpus: found {wanted}, and {visible} GPUs; expected no more than there are")
    return wanted or visible
