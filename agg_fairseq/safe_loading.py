"""Opening fairseq checkpoints without running what is in them."""

from __future__ import annotations

import argparse
import inspect
import pickle
import zipfile
from pathlib import Path
from typing import Any

import torch

from .errors import UserError


class UnreadableCheckpoint(UserError):
    """A file that no version of torch can open: truncated, or no checkpoint at all."""


def allow_namespaces() -> None:
    """Lets `torch.load(weights_only=True)` open checkpoints that hold an `argparse.Namespace`.

    `fairseq-train` saves the options of its older models, the translation transformers among them, in one. It is a
    plain record of values; but torch >= 2.6 refuses it unless told, and with it every resume and every
    `fairseq-generate` of such a model, whatever the criterion.
    """
    if hasattr(torch.serialization, "add_safe_globals"):
        torch.serialization.add_safe_globals([argparse.Namespace])


def open_checkpoint(path: str | Path) -> dict[str, Any]:
    """The contents of a fairseq checkpoint: tensors, numbers, strings and containers of them.

    Tensors are mapped from the file where torch can, so that an optimiser's state takes no memory.

    Raises:
        UnreadableCheckpoint: it is truncated, or another kind of file.
        UserError: there is no such file, it is no fairseq checkpoint, or it holds an object whose loading would run
            code.
    """
    path = Path(path)
    if not path.is_file():
        raise UserError(f"{path}: found no such file; expected a checkpoint, such as checkpoint_best.pt of a run")
    try:
        state = _load(path)
    except pickle.UnpicklingError as error:
        if "global" not in str(error).lower():
            raise UnreadableCheckpoint(_unreadable(path)) from error
        raise UserError(
            f"{path}: refused, since it holds objects whose loading can run code; expected a checkpoint of tensors "
            "and plain values, as fairseq >= 0.12 writes; save it again with that version if you trust it"
        ) from error
    except Exception as error:  # a damaged pickle makes torch fail in as many ways as it has instructions
        raise UnreadableCheckpoint(_unreadable(path)) from error
    if not isinstance(state, dict) or "model" not in state or not (state.get("cfg") or state.get("args")):
        found = ", ".join(map(str, list(state)[:5])) if isinstance(state, dict) else type(state).__name__
        raise UserError(f"{path}: found {found}; expected a fairseq checkpoint, with its `model` and its `cfg`")
    return state


def check_kinds(path: str | Path, state: dict[str, Any]) -> None:
    """Sees that the parts of a checkpoint are of the kinds that fairseq-train saves.

    Args:
        path: of the checkpoint.
        state: as of `open_checkpoint`.

    Raises:
        UserError: there are no parameters by name, or the options, the history, the rest or the position in the data
            are none.
    """
    parameters, history, extra = state["model"], state.get("optimizer_history"), state.get("extra_state")
    if not isinstance(parameters, dict) or not all(isinstance(name, str) for name in parameters):
        raise UserError(f"{path}: found no parameters; expected those of a model, by name")
    if not _has_options(state):
        raise UserError(f"{path}: found options that are none; expected those that fairseq-train saves, by section")
    if history is not None and not (isinstance(history, list) and all(isinstance(one, dict) for one in history)):
        raise UserError(f"{path}: found no history of its optimisers; expected that which fairseq-train saves")
    if extra is not None and not (isinstance(extra, dict) and _is_position(extra.get("train_iterator"))):
        raise UserError(f"{path}: found no position in the data; expected the extra_state that fairseq-train saves")


def _has_options(state: dict[str, Any]) -> bool:
    configuration = state.get("cfg") or state.get("args")
    if not state.get("cfg"):
        return isinstance(configuration, argparse.Namespace)
    kinds = (dict, argparse.Namespace, type(None))
    parts = ("task", "model", "criterion", "checkpoint")
    return isinstance(configuration, dict) and all(isinstance(configuration.get(part), kinds) for part in parts)


def _is_position(iterator: Any) -> bool:
    if iterator is None:  # of an older fairseq
        return True
    numbers = ("epoch", "iterations_in_epoch")
    return isinstance(iterator, dict) and all(isinstance(iterator.get(name, 0), int) for name in numbers)


def _load(path: Path) -> Any:
    options: dict[str, Any] = {"map_location": "cpu", "weights_only": True}
    allow_namespaces()
    try:
        str(path).encode("utf-8")
    except UnicodeEncodeError:  # torch passes names on as UTF-8
        with path.open("rb") as file:
            return torch.load(file, **options)
    if "mmap" in inspect.signature(torch.load).parameters and zipfile.is_zipfile(path):
        options["mmap"] = True
    return torch.load(path, **options)


def _unreadable(path: Path) -> str:
    return f"{path}: found no readable checkpoint (truncated, or another kind of file); expected one that fairseq wrote"
