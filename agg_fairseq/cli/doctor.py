"""Prints the versions of the relevant packages, every known incompatibility with its remedy, and what is ready to use.

The exit status is 1 if training with fairseq cannot start.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import importlib.util
import inspect
import itertools
import platform
from collections.abc import Iterator

from .. import __version__
from ..errors import FAIRSEQ_REMEDY, first_line

DISTRIBUTIONS = {
    "torch": ("torch",),
    "fairseq": ("fairseq-fixed", "ve-fairseq", "fairseq"),
    "hydra": ("hydra-core",),
    "omegaconf": ("omegaconf",),
    "numpy": ("numpy",),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """None are needed."""


def run(arguments: argparse.Namespace) -> int:
    versions = installed_versions()
    for name, version in versions.items():
        print(f"{name:<12} {version or 'not found'}")
    print(f"{'GPU':<12} {', '.join(_gpus()) or 'none (training runs on the CPU)'}")
    stopped = set()
    for text, stops in known_problems(versions):
        print(f"{'error' if stops else 'note'}: {text}")
        stopped.add(stops)
    training = (
        "not installed" if versions["fairseq"] is None else "not ready" if stopped & {"all", "fairseq"} else "ready"
    )
    print(f"functional API: {'not ready' if 'all' in stopped else 'ready'}; training with fairseq: {training}")
    return int(training != "ready")


def installed_versions() -> dict[str, str | None]:
    """Versions by name; None where nothing is installed."""
    versions: dict[str, str | None] = {"agg-fairseq": __version__, "Python": platform.python_version()}
    for name, packages in DISTRIBUTIONS.items():
        installed = itertools.chain(*(importlib.metadata.distributions(name=package) for package in packages))
        versions[name] = next((distribution.version for distribution in installed), None)
    return versions


def known_problems(versions: dict[str, str | None]) -> Iterator[tuple[str, str]]:
    """Incompatibilities of the installed versions, the fatal ones first.

    Each is what was found and the remedy, and what it makes impossible: "all", "fairseq" or nothing.
    """
    torch, numpy, fairseq = (versions[name] for name in ("torch", "numpy", "fairseq"))
    for name in ("torch", "numpy"):
        if failure := _import_failure(name):
            yield f"{name} is missing or broken ({failure}); pip install -c constraints.txt {name}", "all"
    notes = []
    if torch and _at_least(torch, 2, 6):
        notes += [
            f"torch {torch}: fairseq broadcasts checkpoints between workers by unpickling, which torch >= 2.6 refuses; "
            "train on several workers with --load-checkpoint-on-all-dp-ranks",
            f"torch {torch}: fairseq alone cannot open translation models that fairseq-train saved, whatever the "
            "criterion; pass --user-dir to fairseq-generate too, or train by fairseq-hydra-train",
        ]
    if numpy and _at_least(numpy, 2):
        notes.append(
            f"numpy {numpy}: fairseq's --sample-break-mode eos (fairseq-generate of language models) uses names that "
            "numpy 2 has dropped; pip install 'numpy<2'"
        )
    if _gpus() and not importlib.util.find_spec("triton"):
        notes.append(
            "found a GPU but no Triton: the loss uses the implementation for CPUs, which computes in float32 and is "
            "slow for training in half precision; pip install triton (torch for Linux brings it)"
        )
    both = [name for name in DISTRIBUTIONS["fairseq"] if list(importlib.metadata.distributions(name=name))]
    if fairseq is None:
        notes.append(f"fairseq is missing, by which models are trained and data is read; {FAIRSEQ_REMEDY}")
    elif len(both) > 1:
        notes.append(
            f"found {' and '.join(both)}, which install the same files, those of one over those of the other; pip "
            f"uninstall {' '.join(both)}, then {FAIRSEQ_REMEDY}"
        )
    yield from ((note, "") for note in notes)
    if fairseq is None:
        return
    if failure := _import_failure("fairseq.tasks", "fairseq.criterions", "fairseq_cli.train"):
        yield f"fairseq {fairseq} cannot be imported ({failure}); {FAIRSEQ_REMEDY}", "fairseq"
        return
    from fairseq import checkpoint_utils

    if "get_checkpoint_dict" not in inspect.getsource(checkpoint_utils.save_checkpoint):
        text = "does not save a task's state: after a resume the token counter of --criterion agg starts empty"
        yield f"fairseq {fairseq} {text}; {FAIRSEQ_REMEDY}", ""


def _at_least(version: str, *wanted: int) -> bool:
    numbers = tuple(int(part) for part in version.split("+")[0].split(".")[:2] if part.isdigit())
    return numbers >= wanted


def _import_failure(*modules: str) -> str | None:
    """The first line of what importing says, or None where it works. Any exception is an answer here."""
    try:
        for module in modules:
            importlib.import_module(module)
    except Exception as error:
        return first_line(error)
    return None


def _gpus() -> list[str]:
    if _import_failure("torch"):
        return []
    import torch

    return [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
