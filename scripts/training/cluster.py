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
        UserError: the options do not go together, or Slurm starts more than one task on each machine.
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
    """`srun --ntasks-per-node=1` sets these for each machine."""
    nodes = int(environment.get("SLURM_NNODES", 1))
    if nodes == 1:
        return Cluster()
    tasks = environment.get("SLURM_NTASKS", str(nodes))
    if int(tasks) != nodes:
        raise UserError(f"found {tasks} tasks of Slurm on {nodes} machines; expected one on each: --ntasks-per-node=1")
    job = int(environment["SLURM_JOB_ID"])
    host = _first_host(environment["SLURM_JOB_NODELIST"])
    return Cluster(nodes, int(environment["SLURM_NODEID"]), f"{host}:{PORTS[job % len(PORTS)]}")


def _first_host(nodes: str) -> str:
    """Of a list as Slurm abbreviates it, node[01-16]."""
    command = ["scontrol", "show", "hostnames", nodes]
    hosts = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout.split()
    if not hosts:
        raise UserError(f"found no machine by {' '.join(command)}; expected those of the Slurm job, or --nodes, …")
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
