"""Trains a configuration on the GPUs of this machine, or of several, with the tokens per update that it asks for.

    bash scripts/train.sh configs/wikitext103/agg-agg \\
      task.data=data/wikitext103-gpt2/data-bin checkpoint.save_dir=runs/agg-agg

CONFIG is a file of configs/, with or without .yaml, or any other configuration for fairseq-hydra-train. KEY=VALUE
replaces one of its options, or adds one of fairseq's: size=small, optimization.max_update=100, common.fp16=true. To
resume an interrupted training from its last checkpoint, run the same command again.

A configuration is written for one GPU. On several GPUs, each reads fewer tokens per update, so that the training is the
same: the product max_tokens (of a batch) x update_freq (batches per update) x GPUs does not change. If you set
dataset.max_tokens or optimization.update_freq, this value applies to each GPU. To use several machines, run the same
command on all of them with --nodes, --node-rank and --master, or start it through Slurm:

    srun --ntasks-per-node=1 --cpus-per-task=$SLURM_CPUS_ON_NODE --gpus-per-node=8 bash scripts/train.sh CONFIG …

with the number of GPUs of a machine. (Since version 22.05, srun does not take over the CPUs per task of the job.)
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agg_fairseq.errors import UserError

from ..command import find_packages, run, set_up
from .cluster import Batches, Cluster, cluster_of, processes_of, split
from .configuration import ROOT, composed, locate, readable, with_plugin

MAX_TOKENS, UPDATE_FREQ = "dataset.max_tokens", "optimization.update_freq"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="train.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("config", metavar="CONFIG", help="such as configs/wikitext103/agg-agg")
    parser.add_argument("overrides", metavar="KEY=VALUE", nargs="*", help="options of the configuration")
    parser.add_argument("--gpus", type=int, metavar="N", help="number of GPUs of this machine (default: all visible "
                        "ones); for a CPU, number of processes (default: 1)")  # fmt: skip
    parser.add_argument(
        "--nodes", type=int, metavar="N", help="number of machines (default: 1, or as in the Slurm job)"
    )
    parser.add_argument("--node-rank", type=int, metavar="R", help="index of this machine, from 0")
    parser.add_argument("--master", metavar="HOST:PORT", help="the first machine, and a free port on it")
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="check the configuration, print the command and the tokens per update, and start nothing; the GPUs need "
        "not be there, but fairseq has to be installed",
    )
    return parser


def main() -> None:
    """Replaces this process by the training command.

    Raises:
        UserError: the configuration, an override or an option does not fit.
    """
    options = _parser().parse_intermixed_args()
    file = locate(options.config)
    find_packages() if options.dry_run else set_up()  # fairseq checks the configuration
    overrides = with_plugin([readable(override) for override in options.overrides])
    config = composed(file, overrides)
    cluster = cluster_of(options.nodes, options.node_rank, options.master, os.environ)
    processes = processes_of(options.gpus, config.common.cpu, options.dry_run)
    batches = _batches(config, file, overrides, cluster.nodes * processes)
    command = [
        *_program(cluster, processes), "--config-dir", str(file.parent), "--config-name", file.stem,
        *_settings(config, batches), *overrides,
    ]  # fmt: skip
    if options.dry_run:
        print(shlex.join(command))
        return
    sys.stderr.flush()
    os.execv(command[0], command)


def _batches(config: Any, file: Path, overrides: Sequence[str], processes: int) -> Batches:
    """What each process reads: what the user has set; otherwise such that an update has the configuration's tokens.

    Prints it, and a warning if an update has not the tokens that the learning rate is meant for.
    """
    others = [one for one in overrides if one.lstrip("+").partition("=")[0] not in (MAX_TOKENS, UPDATE_FREQ)]
    given = written = _one_process(config)
    if len(others) == len(overrides):
        batches = split(written.tokens, processes, written.max_tokens, config.task.get("tokens_per_sample") or 1)
    else:
        written = _one_process(composed(file, others))
        batches = Batches(processes, given.max_tokens, given.update_freq)
    unit = "process(es)" if config.common.cpu else "GPU(s)"
    print(
        f"train: {batches.tokens:,} tokens per update = {batches.processes} {unit} x {batches.max_tokens:,} x "
        f"{batches.update_freq} (configured: {written.tokens:,})",
        file=sys.stderr,
    )
    if batches.tokens != written.tokens:
        print(
            f"train: warning: that is {batches.tokens / written.tokens:.4g} times the configured tokens, for which "
            "learning rate and alpha are meant",
            file=sys.stderr,
        )
    return batches


def _one_process(config: Any) -> Batches:
    """What a single process would read."""
    if config.dataset.max_tokens is None or len(config.optimization.update_freq) != 1:
        raise UserError(
            f"found {MAX_TOKENS}={config.dataset.max_tokens}, {UPDATE_FREQ}={config.optimization.update_freq}; "
            "expected a number of tokens, and one of batches"
        )
    return Batches(1, config.dataset.max_tokens, config.optimization.update_freq[0])


def _program(cluster: Cluster, processes: int) -> list[str]:
    """fairseq-hydra-train, or torchrun with several of it."""
    if cluster.nodes * processes == 1:
        return [str(Path(sys.executable).with_name("fairseq-hydra-train"))]
    where = ["--standalone"]
    if cluster.master is not None:
        host, _, port = cluster.master.rpartition(":")
        where = ["--nnodes", cluster.nodes, "--node-rank", cluster.rank, "--master-addr", host, "--master-port", port]
    start = str(ROOT / "scripts" / "run.py")
    torchrun = [sys.executable, start, "scripts.training.torchrun", *where, "--nproc-per-node", processes]
    return [*map(str, torchrun), start, "scripts.training.torchrun"]


def _settings(config: Any, batches: Batches) -> list[str]:
    """Overrides that go before those of the user."""
    settings = [
        "hydra.run.dir=${checkpoint.save_dir}/hydra",
        "hydra.job.chdir=false",  # paths are relative to where the user is
        f"++{MAX_TOKENS}={batches.max_tokens}",
        f"++{UPDATE_FREQ}=[{batches.update_freq}]",
    ]
    if "tokens_per_sample" in config.task:  # by default fairseq cuts a batch of 33 sequences down to 32
        settings.append("++dataset.required_batch_size_multiple=1")
    if batches.processes == 1:
        return [*settings, "distributed_training.distributed_world_size=1"]  # fairseq's default is all GPUs
    return [
        *settings,
        f"distributed_training.distributed_backend={'gloo' if config.common.cpu else 'nccl'}",
        "distributed_training.ddp_backend=legacy_ddp",  # reduces also what is used outside forward
        "checkpoint.load_checkpoint_on_all_dp_ranks=true",  # what the first sends to others, torch >= 2.6 does not open
    ]


if __name__ == "__main__":
    raise SystemExit(run("train", main))
