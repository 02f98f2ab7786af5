"""Configurations of fairseq-hydra-train: found, composed, checked, and divided among processes."""

from __future__ import annotations

import argparse
import contextlib
import re
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import agg_fairseq
from agg_fairseq.errors import UserError

from ..command import ROOT

PLUGIN = Path(agg_fairseq.__file__).parent / "user_dir" / "agg_plugin"
SIZES = ("dataset.max_tokens", "optimization.update_freq")


def locate(given: str) -> Path:
    """The file of a configuration, relative to where the user is or to the repository, with or without .yaml."""
    name = f"{given.removesuffix('.yaml')}.yaml"
    for folder in (Path.cwd(), ROOT):
        if (folder / name).is_file():
            return (folder / name).resolve()
    raise UserError(f"found no configuration {given}; expected one such as configs/wikitext103/agg")


def readable(override: str) -> str:
    """An override in a form that hydra accepts: of an option that no file sets, and with any text as its one value."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    key, equals, value = override.partition("=")
    if equals and "." in key and key[0] not in "+~":
        override = f"++{override}"
    try:
        accepted = not OverridesParser.create().parse_override(override).is_sweep_override()
    except HydraException:
        if not equals:
            raise UserError(f"found the argument {override!r}; expected KEY=VALUE") from None
        accepted = False
    return override if accepted else f"{override.partition('=')[0]}={quoted(value)}"


def quoted(text: str) -> str:
    """A text as a value of hydra's grammar, where a backslash escapes only before a quotation mark."""
    escaped = re.sub(r"(\\*)('|$)", lambda match: 2 * match[1] + ("\\'" if match[2] else ""), text)
    return f"'{escaped}'"


def with_plugin(file: Path, overrides: Sequence[str]) -> list[str]:
    """The overrides, with this package as fairseq's user_dir, unless they or the configuration name another."""
    if any("common.user_dir=" in override for override in overrides):
        return list(overrides)
    common = as_written(file).get("common", {})
    folder = PLUGIN if "user_dir" not in common else ROOT / common.user_dir  # `in` is false for a value that is missing
    return [f"++common.user_dir={quoted(str(folder))}", *overrides]


def as_written(file: Path, overrides: Sequence[str] = ()) -> Any:
    """The configuration as hydra composes it, without the defaults that fairseq adds."""
    from hydra import compose, initialize_config_dir

    with _errors_in_one_line(file.stem), initialize_config_dir(str(file.parent), version_base="1.1"):
        return compose(file.stem, list(overrides))


def composed(file: Path, overrides: Sequence[str]) -> Any:
    """The whole configuration, as fairseq-hydra-train sees it, and checked, but for the files that it names."""
    from omegaconf import OmegaConf

    with _errors_in_one_line(file.stem):
        config = as_written(file, overrides)
        if missing := missing_keys(config):
            raise UserError(f"found no {', '.join(missing)}; expected {' '.join(f'{key}=…' for key in missing)}")
        whole = _with_defaults(config)
        OmegaConf.resolve(whole)  # here, where an interpolation that cannot be resolved becomes one line
        return whole


@contextlib.contextmanager
def _errors_in_one_line(name: str) -> Iterator[None]:
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    try:
        yield
    except UserError:
        raise
    except Exception as error:  # of hydra, omegaconf, yaml and fairseq, which raise whatever a malformed file leads to
        text = str(error).partition("Config search path")[0]
        said = " ".join(line for line in text.splitlines() if "_type=" not in line)  # without hydra's own classes
        if not isinstance(error, HydraException | OmegaConfBaseException | YAMLError | OSError):  # of a clear text
            said = f"{type(error).__name__}: {said}"
        raise UserError(f"{name}: {said}") from error


def missing_keys(config: Any) -> list[str]:
    """The options that have to be given, in order. (omegaconf's own function fails on options that refer to them.)"""
    from omegaconf import OmegaConf

    sections = OmegaConf.to_container(config, resolve=False).items()
    options = [(name, *option) for name, section in sections if isinstance(section, dict) for option in section.items()]
    return sorted(f"{name}.{key}" for name, key, value in options if value == "???")


def check_files(config: Any) -> None:
    """Checks that the data and the checkpoint to start from are there."""
    for folder in str(config.task.data).split(":"):  # as fairseq does
        if not Path(folder).is_dir():
            raise UserError(f"task.data: found no folder {folder}; expected the data-bin of a prepared corpus")
    start = config.checkpoint.get("finetune_from_model")
    if start and not (isinstance(start, str) and Path(start).is_file()):
        raise UserError(f"checkpoint.finetune_from_model: found no file {start}; expected a checkpoint")


def _with_defaults(config: Any) -> Any:
    """Adds what fairseq adds: the defaults of its own sections, and of the task, model, criterion, … by their names."""
    from fairseq import utils
    from fairseq.dataclass.configs import FairseqConfig
    from fairseq.dataclass.initialize import add_defaults
    from omegaconf import OmegaConf

    whole = OmegaConf.merge(OmegaConf.structured(FairseqConfig), config)
    utils.import_user_module(whole.common)
    _check_names(whole)
    add_defaults(whole)
    _check_model(whole.model)
    return whole


def _check_names(config: Any) -> None:
    """Checks the names of task, model, criterion, …, for which fairseq would fail with a traceback."""
    from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_REGISTRY
    from fairseq.registry import REGISTRIES
    from fairseq.tasks import TASK_REGISTRY

    known = {name: set(parts["registry"]) for name, parts in REGISTRIES.items()}
    known |= {"task": set(TASK_REGISTRY), "model": {*MODEL_REGISTRY, *ARCH_MODEL_REGISTRY}}
    for section in ("task", "model", "criterion", "optimizer", "lr_scheduler"):
        name = (config[section] or {}).get("_name")
        if name not in known[section]:
            raise UserError(f"{section}._name: found {name}; expected one of {', '.join(sorted(known[section]))}")


def _check_model(model: Any) -> None:
    """Checks the options of models that are not dataclasses: fairseq ignores those that it does not know."""
    from fairseq.models import ARCH_MODEL_NAME_REGISTRY, MODEL_DATACLASS_REGISTRY, MODEL_REGISTRY

    name = ARCH_MODEL_NAME_REGISTRY.get(model._name, model._name)
    if name in MODEL_DATACLASS_REGISTRY:
        return
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    MODEL_REGISTRY[name].add_args(parser)
    known = {action.dest for action in parser._actions} | {"_name"}
    known |= {"criterion", "train_subset", "save_dir", "restore_file"}  # of lstm_lm; the others of transformer_f2
    unknown = sorted(set(model) - known)
    if unknown:
        raise UserError(f"model.{unknown[0]}: found no such option of {name}; expected {', '.join(sorted(known))}")


@dataclass(frozen=True)
class Batches:
    """What each process reads for an update."""

    processes: int  # side by side
    max_tokens: int  # largest number of tokens in a batch
    update_freq: int  # batches of a process per update

    @property
    def tokens(self) -> int:
        """Of an update, at most."""
        return self.processes * self.max_tokens * self.update_freq

    def __str__(self) -> str:
        return f"{self.tokens:,} tokens per update = {self.processes} x {self.max_tokens:,} x {self.update_freq}"


def batches_of(config: Any, processes: int, given: Container[str] = ()) -> Batches:
    """The tokens per update of a configuration for one process, divided among several.

    Options of `SIZES` that the user has `given` apply to each process, and nothing is divided.
    """
    tokens, frequencies = config.dataset.max_tokens, config.optimization.update_freq
    if tokens is None or len(frequencies) != 1:
        found = f"dataset.max_tokens={tokens}, optimization.update_freq={frequencies}"
        raise UserError(f"found {found}; expected a number of tokens, and one of batches")
    if any(size in given for size in SIZES):
        return Batches(processes, tokens, frequencies[0])
    return split(tokens * frequencies[0], processes, tokens, config.task.get("tokens_per_sample") or 1)


def split(tokens: int, processes: int, largest: int, block: int = 1) -> Batches:
    """Batches whose tokens per update are as near as possible to a given number, whatever the number of processes.

    An update has as few batches as fit into `largest`, or up to twice as many smaller ones if these come nearer.

    Args:
        largest: tokens that a process can read at once.
        block: the tokens of a batch are a multiple of it: the length of a language model's sequences.
    """
    fewest = max(1, -(-tokens // (processes * largest)))
    candidates = []
    for number in range(fewest, 2 * fewest + 1):
        blocks = min(round(tokens / (processes * number) / block), largest // block)
        candidates.append(Batches(processes, block * max(1, blocks), number))
    return min(candidates, key=lambda batches: (abs(batches.tokens - tokens), batches.update_freq))
