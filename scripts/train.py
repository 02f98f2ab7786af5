"""Trains a configuration of fairseq-hydra-train: the program behind train.sh, which has the help.

`--check` composes the configurations of the trainings that standard input lists, and checks their
folders, and that there will be checkpoints to average.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import logging
import os
import shlex
import socket
import subprocess
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from agg_fairseq.errors import UserError
from agg_fairseq.files import read_json_object, write_json

from .command import ROOT, run

DONE, SETTINGS, LAST = "done", "settings.json", "checkpoint_last.pt"
CHANGED = "changed"  # the entry of the settings that says what the user changed
DIVIDED = ("dataset.max_tokens=", "optimization.update_freq=")
"""The options whose product, the tokens of an update, is divided among the processes."""
MEETING = ("WORLD_SIZE", "RANK", "MASTER_ADDR", "MASTER_PORT")
VOCABULARY = 100_000  # of criterions that are built as a check
TOLERANCE = 0.02  # by which the tokens of an update may differ from those configured
PLUGIN = "agg_fairseq/fairseq_plugin/user_dir/agg_plugin"
FREE = ("checkpoint.save_dir", "common.user_dir", "common.log_", "dataset.num_workers", "hydra.")
"""Beginnings of the options that may differ when a training is resumed."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Starts the training and waits for its end; its status is that of this program."""
    logging.disable(logging.INFO)  # importing fairseq turns on the debug messages of every library
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser("train", usage=argparse.SUPPRESS)
    parser.add_argument("config", nargs="?", default="")
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--gpus", type=int)
    parser.add_argument("--place", default="0/1")
    parser.add_argument("--changed")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--dry-run", action="store_true")
    options = parser.parse_intermixed_args(sys.argv[1:] if arguments is None else arguments)
    place, places = map(int, options.place.split("/"))
    machines = Machines.found()
    trainings, averaged = [options], set()
    if options.check:
        trainings = []
        for _, *words in filter(None, map(shlex.split, sys.stdin)):
            if words and words[0].endswith("/train.sh"):
                trainings.append(parser.parse_intermixed_args(words[1:]))
            elif words[:1] == ["average-checkpoints"]:
                averaged.add(words[1])
    # All before fairseq is imported, whose own configurations hydra would copy each time.
    all_composed = [composed(of.config, of.overrides, of.gpus) for of in trainings]
    for training, (file, overrides, written) in zip(trainings, all_composed, strict=True):
        config = full_config(written)
        gpus = name_gpus(config, training.gpus, place, places, options.dry_run)
        processes = machines.number * max(1, len(gpus))
        batches = divide_batches(config, processes)
        if options.check:
            build_criterion(config)
            updates, folder = config.optimization.max_update, config.checkpoint.save_dir
            interval = config.checkpoint.save_interval_updates
            if folder in averaged and not 0 < interval <= updates:
                raise UserError(
                    f"{folder}: found checkpoint.save_interval_updates={interval} for {updates} "
                    "updates; expected fewer, since its checkpoints are averaged"
                )
            is_done(written)
            continue
        is_divided = places > 1 or machines.number > 1  # fairseq takes all that are visible
        command = [
            *(["env", f"CUDA_VISIBLE_DEVICES={','.join(gpus)}"] if gpus and is_divided else []),
            str(Path(sys.executable).with_name("fairseq-hydra-train")),
            *("--config-dir", str(file.parent), "--config-name", file.stem),
            *settings_of_processes(config, machines, processes, *batches),
            *(word for word in overrides if not word.lstrip("+").startswith(DIVIDED)),
        ]
        if options.dry_run:
            print(shlex.join(command))
        else:
            start(command, written, options.changed, machines.rank == 0)


class Machines(NamedTuple):
    """The machines that train together, of which each runs this program once."""

    number: int = 1
    rank: int = 0  # of this one
    address: str = ""  # where the first one is met: HOST:PORT

    @classmethod
    def found(cls) -> Machines:
        """What torchrun's variables say; without them, this machine."""
        number, rank, host, port = given = [os.environ.get(name, "") for name in MEETING]
        if number in ("", "1"):
            return cls()
        local = os.environ.get("LOCAL_WORLD_SIZE", "1")
        if not all(given) or local != "1":
            found = " ".join(map("=".join, zip(MEETING, given, strict=True)))
            raise UserError(
                f"found {found} LOCAL_WORLD_SIZE={local}; expected all of them, of one process on "
                "each machine, as of torchrun --nproc-per-node 1"
            )
        return cls(int(number), int(rank), f"{host}:{port}")


def start(command: list[str], written: Any, changed: str | None, is_first: bool) -> None:
    """Trains, unless the folder has the whole training already. The first machine alone writes what
    is beside the training's own files."""
    if not is_first:
        if not is_done(written) and (status := subprocess.run(command).returncode):
            raise SystemExit(status)
        return
    folder = Path(written.checkpoint.save_dir)
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # waits for another run in this folder to end
        if is_done(written):
            print(f"train: {folder} is trained already", file=sys.stderr)
            return
        settings = training_settings(written) | ({} if changed is None else {CHANGED: changed})
        write_json(folder / SETTINGS, settings)
        # It inherits the lock, so that the next run waits for what is left of one that was killed.
        if status := subprocess.run(command, pass_fds=[lock.fileno()]).returncode:
            raise SystemExit(status)
        # after which a training ends, to be resumed
        if not written.optimization.get("stop_time_hours"):
            (folder / DONE).touch()


def composed(
    config: str, overrides: Sequence[str], gpus: int | None = None
) -> tuple[Path, list[str], Any]:
    """The file of a configuration, the overrides as hydra takes them, and what it composes of both.

    The file may be relative to where the user is or to the repository. fairseq's user_dir is this
    package's, or what is named, relative to the repository. A number of GPUs replaces `common.cpu`
    of a configuration, and `common.bf16` its `common.fp16`.
    """
    name, given = f"{config.removesuffix('.yaml')}.yaml", []
    file = Path.cwd() / name
    if not file.is_file() and not (file := ROOT / name).is_file():
        raise UserError(f"found no configuration {config}; expected one such as configs/demo/agg")
    for override in overrides:
        if "=" not in override and not override.startswith("~"):
            raise UserError(f"found the argument {override!r}; expected KEY=VALUE")
        is_option = "." in override.partition("=")[0] and override[0] not in "+~"
        given.append(f"++{override}" if is_option else override)  # also of those that no file sets
    try:
        with initialize_config_dir(str(file.parent), version_base="1.1"):
            written = compose(file.stem, given)
            for key, instead in (("cpu", gpus), ("fp16", written.common.get("bf16"))):
                if instead and written.common.get(key):
                    given.append(f"++common.{key}=false")
                    written = compose(file.stem, given)
        user_dir = str(ROOT / (written.common.get("user_dir") or PLUGIN))
        OmegaConf.update(written, "common.user_dir", user_dir, force_add=True)
    except Exception as error:  # whatever a malformed file leads to
        raise UserError(f"{file.stem}: {str(error).partition('Config search path')[0]}") from error
    return file, [*given, f"++common.user_dir='{user_dir}'"], written


def flat_options(config: Any) -> dict[str, Any]:
    """All options by their names, SECTION.KEY; references to others are not resolved."""
    options = {}
    for name, section in OmegaConf.to_container(config).items():
        if isinstance(section, dict):
            options |= {f"{name}.{key}": value for key, value in section.items()}
    return options


def full_config(written: Any) -> Any:
    """The whole configuration, as fairseq-hydra-train sees it; checks all names and keys."""
    from fairseq import utils
    from fairseq.dataclass.configs import FairseqConfig
    from fairseq.dataclass.initialize import add_defaults

    if missing := sorted(key for key, value in flat_options(written).items() if value == "???"):
        expected = " ".join(f"{key}=…" for key in missing)
        raise UserError(f"found no {', '.join(missing)}; expected {expected}")
    try:
        whole = OmegaConf.merge(OmegaConf.structured(FairseqConfig), written)
        utils.import_user_module(whole.common)
        check_names(whole)
        add_defaults(whole)
        OmegaConf.resolve(whole)
    except Exception as error:  # of this module, omegaconf or fairseq
        raise UserError(str(error)) from error
    return whole


def check_names(config: Any) -> None:
    """Checks what fairseq does not: names, and options of models that are no dataclasses."""
    from fairseq.models import ARCH_MODEL_NAME_REGISTRY, MODEL_DATACLASS_REGISTRY, MODEL_REGISTRY
    from fairseq.registry import REGISTRIES
    from fairseq.tasks import TASK_REGISTRY

    known = {"task": TASK_REGISTRY, "model": MODEL_REGISTRY | ARCH_MODEL_NAME_REGISTRY}
    for section in ("criterion", "optimizer", "lr_scheduler", *known):
        names = known.get(section) or REGISTRIES[section]["registry"]
        name = (config[section] or {}).get("_name")
        if name not in names:
            expected = ", ".join(sorted(names))
            raise UserError(f"{section}._name: found {name}; expected one of {expected}")
    model = ARCH_MODEL_NAME_REGISTRY.get(config.model._name, config.model._name)
    if model in MODEL_DATACLASS_REGISTRY:
        return  # of other models, fairseq ignores options that it does not know
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    MODEL_REGISTRY[model].add_args(parser)
    options = {action.dest for action in parser._actions} | {"_name"}
    # of lstm_lm; the others of transformer_f2
    options |= {"criterion", "train_subset", "save_dir", "restore_file"}
    if unknown := sorted(set(config.model) - options):
        expected = ", ".join(sorted(options))
        raise UserError(f"model.{unknown[0]}: found no such option of {model}; expected {expected}")


def build_criterion(config: Any) -> None:
    """Builds the criterion as fairseq will, which checks its options. The data may not be there
    yet: a large dictionary of numbers takes the place of its own."""
    from fairseq.data import Dictionary
    from fairseq.tasks import TASK_REGISTRY

    dictionary = Dictionary()
    dictionary.symbols += map(str, range(VOCABULARY))
    dictionary.count += [1] * VOCABULARY
    dictionaries = [dictionary] * (2 if "source_lang" in config.task else 1)
    TASK_REGISTRY[config.task._name](config.task, *dictionaries).build_criterion(config.criterion)


def training_settings(written: Any) -> dict[str, Any]:
    """What a training depends on: its options, the digest of its data, and the training that it
    starts from, with the digest of its settings."""
    settings = {}
    for key, value in sorted(flat_options(written).items()):
        if not key.startswith(FREE):
            settings[key] = value
    data = Path(str(written.task.data))
    dictionaries = sorted(data.glob("dict*.txt"))
    settings["task.data"] = file_digest(data.parent / "manifest.json", *dictionaries)
    if start := settings.get("checkpoint.finetune_from_model"):
        path = os.path.relpath(start, written.checkpoint.save_dir)
        digest = file_digest(Path(start).parent / SETTINGS)
        settings["checkpoint.finetune_from_model"] = [path, digest]
    return settings


def file_digest(*paths: Path) -> str | None:
    """The SHA-256 of the first of the files that is there."""
    for path in filter(Path.is_file, paths):
        return hashlib.sha256(path.read_bytes()).hexdigest()
    return None


def is_done(written: Any) -> bool:
    """Whether a training is finished; UserError if its folder has one of other settings."""
    folder = Path(written.checkpoint.save_dir)
    if not (folder / LAST).is_file() and not (folder / DONE).is_file():
        return False
    remedy = f"remove {folder}, or name another folder"
    expected = f"the settings of the training in this folder; {remedy}"
    recorded = read_json_object(folder / SETTINGS, expected)
    wanted, different = training_settings(written), []
    for key in sorted({*recorded, *wanted} - {CHANGED}):
        if recorded.get(key) != wanted.get(key):
            different.append(f"{key}: {recorded.get(key)}, not {wanted.get(key)}")
    if different:
        other = "; ".join(different)
        raise UserError(f"{folder} holds a training of other settings ({other}); {remedy}")
    return (folder / DONE).is_file()


def name_gpus(config: Any, gpus: int | None, place: int, places: int, is_dry: bool) -> list[str]:
    """The names of the GPUs of one training, as CUDA_VISIBLE_DEVICES has them.

    Args:
        config: the whole configuration; one for a CPU has no GPUs.
        gpus: their number on a machine; None: all that are visible, divided among the places.
        place: that of this training, from 0, of `places` side by side. Each has GPUs of its own if
            there are enough; otherwise they share them.
        is_dry: also names GPUs that are not there.
    """
    if config.common.cpu:
        return []
    visible = torch.cuda.device_count()
    number = gpus or max(1, visible // places)
    if number < 1 or (visible < number and not is_dry):
        raise UserError(
            f"found {visible} GPUs; expected {gpus or 'one'} or more at this size; "
            "size=tiny is for a CPU"
        )
    visible = max(visible, number)
    names = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(visible)))
    first = place % (visible // number) * number
    return names.split(",")[first : first + number]


def settings_of_processes(
    config: Any, machines: Machines, processes: int, max_tokens: int, update_freq: int
) -> list[str]:
    """The options that depend on the number of processes; tells the tokens of an update."""
    print(
        f"train: {processes * max_tokens * update_freq:,} tokens per update = {processes} x "
        f"{max_tokens:,} x {update_freq} (processes x tokens of a batch x batches)",
        file=sys.stderr,
    )
    settings = [
        "hydra.run.dir=${checkpoint.save_dir}/hydra",
        "hydra.job.chdir=false",  # paths are relative to where the user is
        f"++dataset.max_tokens={max_tokens}",
        f"++optimization.update_freq=[{update_freq}]",
        f"distributed_training.distributed_world_size={processes}",  # fairseq's default is all GPUs
    ]
    if processes > 1:
        address, local = machines.address, processes // machines.number
        if not address:
            with socket.socket() as probe:
                probe.bind(("localhost", 0))
                address = f"localhost:{probe.getsockname()[1]}"  # that nobody uses
        settings += [
            # reduces also what is used outside forward
            "distributed_training.ddp_backend=legacy_ddp",
            # what the first process sends to others, torch >= 2.6 does not open
            "checkpoint.load_checkpoint_on_all_dp_ranks=true",
            # without it, fairseq would look for other machines in a Slurm job
            f"distributed_training.distributed_init_method='tcp://{address}'",
            f"distributed_training.distributed_rank={machines.rank * local}",  # of its first one
        ]
        if config.common.cpu:  # fairseq would start a process for each GPU
            settings += ["distributed_training.distributed_no_spawn=true"]
            settings += ["distributed_training.distributed_backend=gloo"]
    return settings


def divide_batches(config: Any, processes: int) -> tuple[int, int]:
    """The tokens of a batch, and the batches of a process per update: what is configured, divided
    among the processes.

    UserError if that changes the tokens of an update by more than 2%, or what `agps` looks at: its
    gates depend on which tokens are in a batch.
    """
    configured, frequencies = config.dataset.max_tokens, config.optimization.update_freq
    if configured is None or len(frequencies) != 1:
        found = f"dataset.max_tokens={configured}, optimization.update_freq={frequencies}"
        raise UserError(f"found {found}; expected a number of tokens, and one of batches")
    block = config.task.get("tokens_per_sample") or 1
    most = max(1, configured // block)  # blocks of a batch
    blocks = most * frequencies[0]  # of an update
    update_freq = -(-blocks // (processes * most))  # as few as an update needs
    batch_blocks = max(1, min(round(blocks / (processes * update_freq)), most))
    wrong = ""
    if abs(processes * batch_blocks * update_freq / blocks - 1) > TOLERANCE:
        found = f"{processes * batch_blocks * update_freq * block:,}"
        wrong = f"an update would have {found} tokens; expected {blocks * block:,}"
    elif config.criterion._name == "agps" and batch_blocks != most:
        found = f"{batch_blocks * block:,} tokens; expected {most * block:,}"
        wrong = f"a batch would have {found}, since the gates of agps depend on the batch"
    if wrong:
        remedy = "choose another number by --gpus"
        raise UserError(f"found {processes} GPUs, on which {wrong}; {remedy}")
    return batch_blocks * block, update_freq


if __name__ == "__main__":
    raise SystemExit(run("train", main))
