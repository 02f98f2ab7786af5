"""Trains a configuration on the GPUs of this machine, with the tokens per update that it asks for.

    bash scripts/train.sh configs/wikitext103/agg \\
      task.data=data/wikitext103-gpt2/data-bin checkpoint.save_dir=runs/agg

CONFIG is a file of configs/, with or without .yaml, or any other configuration for fairseq-hydra-train. KEY=VALUE
replaces one of its options, or adds one of fairseq's: size=small, optimization.max_update=100, common.fp16=true. To
resume an interrupted training from its last checkpoint, run the same command again.

A configuration is written for one GPU. On several GPUs, each reads fewer tokens per update, so that the training is the
same: the product max_tokens (of a batch) x update_freq (batches per update) x GPUs does not change. If you set
dataset.max_tokens or optimization.update_freq, this value applies to each GPU.
"""

from __future__ import annotations

import os
import shlex
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from agg_fairseq.errors import UserError

from ..command import Parser, run, whole_number
from .configuration import SIZES, batches_of, composed, locate, readable, with_plugin


def main(arguments: Sequence[str] | None = None) -> None:
    """Replaces this process by the training command."""
    parser = Parser("train.sh", __doc__)
    parser.add_argument("config", metavar="CONFIG", help="such as configs/wikitext103/agg")
    parser.add_argument("overrides", metavar="KEY=VALUE", nargs="*", help="options of the configuration")
    parser.add_argument("--gpus", type=whole_number, metavar="N", help="number of GPUs (default: all visible ones)")
    parser.add_argument(
        "--dry-run", action="store_true", help="print the command and the tokens per update, and start nothing"
    )  # fmt: skip
    options = parser.parse_intermixed_args(arguments)
    file = locate(options.config)
    overrides = with_plugin(file, [readable(override) for override in options.overrides])
    config = composed(file, overrides)
    given = {override.lstrip("+").partition("=")[0] for override in overrides}
    gpus = 1 if config.common.cpu else _number_of_gpus(options.gpus, options.dry_run)
    batches = batches_of(config, gpus, given)
    print(f"train: {batches} (processes x tokens x batches)", file=sys.stderr)
    others = [override for override in overrides if override.lstrip("+").partition("=")[0] not in SIZES]
    written = batches_of(composed(file, others), 1, SIZES).tokens
    if batches.tokens != written:
        print(
            f"train: warning: that is {batches.tokens / written:.4g} times the configured {written:,} tokens, for "
            "which learning rate and alpha are meant",
            file=sys.stderr,
        )
    settings = [
        "hydra.run.dir=${checkpoint.save_dir}/hydra",
        "hydra.job.chdir=false",  # paths are relative to where the user is
        f"++dataset.max_tokens={batches.max_tokens}",
        f"++optimization.update_freq=[{batches.update_freq}]",
        f"distributed_training.distributed_world_size={gpus}",  # fairseq's default is all GPUs
    ]
    if "tokens_per_sample" in config.task:  # by default fairseq cuts a batch of 33 sequences down to 32
        settings.append("++dataset.required_batch_size_multiple=1")
    if gpus > 1:
        settings += [
            "distributed_training.ddp_backend=legacy_ddp",  # reduces also what is used outside forward
            # what the first process sends to others, torch >= 2.6 does not open
            "checkpoint.load_checkpoint_on_all_dp_ranks=true",
        ]
        with socket.socket() as probe:
            probe.bind(("localhost", 0))
            port = probe.getsockname()[1]  # that nobody uses
        # without it, fairseq would look for other machines in a Slurm job
        settings.append(f"distributed_training.distributed_init_method='tcp://localhost:{port}'")
    program = str(Path(sys.executable).with_name("fairseq-hydra-train"))
    command = [program, "--config-dir", str(file.parent), "--config-name", file.stem, *settings, *overrides]
    if options.dry_run:
        print(shlex.join(command))
        return
    sys.stderr.flush()
    os.execv(command[0], command)


def _number_of_gpus(wanted: int | None, may_be_elsewhere: bool) -> int:
    """Number of processes: `wanted`, or one per GPU that is visible."""
    import torch

    visible = torch.cuda.device_count()
    if visible < (wanted or 1) and not may_be_elsewhere:
        raise UserError(
            f"found {visible} GPUs; expected {wanted or 'one'} or more at this size; size=tiny is for a CPU"
        )
    return wanted or visible or 1


if __name__ == "__main__":
    raise SystemExit(run("train", main))
