"""Trains a configuration on the GPUs of this machine, with the tokens per update that it asks for.

    bash scripts/train.sh configs/wikitext103/agg \\
      task.data=data/wikitext103-gpt2/data-bin checkpoint.save_dir=runs/agg

CONFIG is a file of configs/, with or without .yaml, or any other configuration for fairseq-hydra-train. KEY=VALUE
replaces one of its options, or adds one of fairseq's: size=agg-small, optimization.max_update=100, common.fp16=true. To
resume an interrupted training from its last checkpoint, run the same command again; a folder with a training of other
settings is refused, and a finished training is left alone.

A configuration is written for one GPU. On several GPUs, each reads fewer tokens per update, so that the training is the
same: the product max_tokens (of a batch) x update_freq (batches per update) x GPUs does not change. If you set
dataset.max_tokens or optimization.update_freq, this value applies to each GPU.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import shlex
import signal
import socket
import subprocess
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agg_fairseq.errors import UserError
from agg_fairseq.files import read_json_object, write_json

from ..command import Parser, run, whole_number
from .configuration import SIZES, as_written, batches_of, check_files, composed, locate, readable, with_plugin

DONE, SETTINGS, LAST = "done", "settings.json", "checkpoint_last.pt"
FREE = ("checkpoint.save_dir", "common.user_dir", "common.log_", "dataset.num_workers", "hydra.")
"""Beginnings of the options that may differ when a training is resumed."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Starts the training command, and waits for its end; its status is that of this program."""
    parser = Parser("train.sh", __doc__)
    parser.add_argument("config", metavar="CONFIG", nargs="?", help="such as configs/wikitext103/agg")
    parser.add_argument("overrides", metavar="KEY=VALUE", nargs="*", help="options of the configuration")
    parser.add_argument("--gpus", type=whole_number, metavar="N", help="number of GPUs (default: all visible ones)")
    parser.add_argument(
        "--dry-run", action="store_true", help="print the command and the tokens per update, and start nothing"
    )  # fmt: skip
    parser.add_argument(
        "--check", action="store_true", help="only check the configurations of the trainings that standard input lists"
    )  # fmt: skip
    options = parser.parse_intermixed_args(arguments)
    logging.disable(logging.INFO)  # importing fairseq turns on the debug messages of every library
    warnings.simplefilter("ignore")
    if options.check:
        for line in sys.stdin:
            words = shlex.split(line)
            if len(words) > 1 and words[1].endswith("train.sh"):
                given = parser.parse_intermixed_args(words[2:])
                file = locate(given.config)
                overrides = _overrides(file, given.overrides)
                batches_of(composed(file, overrides), 1)
                _check_folder(file, overrides)
        return
    if options.config is None:
        raise UserError("found no CONFIG; expected one such as configs/wikitext103/agg; see --help")
    file = locate(options.config)
    overrides = _overrides(file, options.overrides)
    config = composed(file, overrides)
    check_files(config)
    folder = Path(config.checkpoint.save_dir)
    command = _command(file, overrides, config, options.gpus, options.dry_run)
    if options.dry_run:
        print(shlex.join(command))
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: the training is ended too
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"train: waiting for another run in {folder} to end", file=sys.stderr)
            fcntl.flock(lock, fcntl.LOCK_EX)
        if _check_folder(file, overrides):
            print(f"train: {folder} is trained already", file=sys.stderr)
            return
        write_json(folder / SETTINGS, _settings(file, overrides))
        # It inherits the lock, so that the next run waits for what is left of one that was killed.
        training = subprocess.Popen(command, pass_fds=[lock.fileno()])
        try:
            status = training.wait()
        except KeyboardInterrupt:
            training.terminate()
            training.wait()
            raise
        if status:
            raise SystemExit(status)
        if not config.optimization.stop_time_hours:  # after which a training ends, to be resumed
            (folder / DONE).touch()


def _overrides(file: Path, given: Sequence[str]) -> list[str]:
    return with_plugin(file, [readable(override) for override in given])


def _settings(file: Path, overrides: Sequence[str]) -> dict[str, Any]:
    """What a training depends on: its options by name, the digest of its data, and where it starts from."""
    from omegaconf import OmegaConf

    written = as_written(file, overrides)
    sections = OmegaConf.to_container(written, resolve=False)
    options = {f"{name}.{key}": value for name, section in sections.items() for key, value in (section or {}).items()}
    settings = {key: value for key, value in sorted(options.items()) if not key.startswith(FREE)}
    data = Path(str(written.task.data))
    facts = data.parent / "manifest.json"
    if not facts.is_file():
        facts = next(iter(sorted(data.glob("dict*.txt"))), None)
    settings["task.data"] = facts and hashlib.sha256(facts.read_bytes()).hexdigest()
    if start := settings.get("checkpoint.finetune_from_model"):
        settings["checkpoint.finetune_from_model"] = os.path.relpath(start, written.checkpoint.save_dir)
    return settings


def _check_folder(file: Path, overrides: Sequence[str]) -> bool:
    """Whether a training is finished; UserError if its folder holds one of other settings.

    A training that has not written a checkpoint does not count.
    """
    folder = Path(as_written(file, overrides).checkpoint.save_dir)
    if not (folder / LAST).is_file() and not (folder / DONE).is_file():
        return False
    remedy = f"remove {folder}, or name another folder"
    recorded = read_json_object(folder / SETTINGS, f"the settings of the training in this folder; {remedy}")
    wanted = _settings(file, overrides)
    different = [key for key in sorted({*recorded, *wanted}) if recorded.get(key) != wanted.get(key)]
    if different:
        other = "; ".join(f"{key}: {recorded.get(key)}, not {wanted.get(key)}" for key in different)
        raise UserError(f"{folder} holds a training of other settings ({other}); {remedy}")
    return (folder / DONE).is_file()


def _command(file: Path, overrides: Sequence[str], config: Any, gpus: int | None, dry: bool) -> list[str]:
    """The command of fairseq, with the batches of each process; tells the tokens of an update."""
    given = {override.lstrip("+").partition("=")[0] for override in overrides}
    processes = 1 if config.common.cpu else _number_of_gpus(gpus, dry)
    batches = batches_of(config, processes, given)
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
        f"distributed_training.distributed_world_size={processes}",  # fairseq's default is all GPUs
    ]
    if "tokens_per_sample" in config.task:  # by default fairseq cuts a batch of 33 sequences down to 32
        settings.append("++dataset.required_batch_size_multiple=1")
    if processes > 1:
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
    return [program, "--config-dir", str(file.parent), "--config-name", file.stem, *settings, *overrides]


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
