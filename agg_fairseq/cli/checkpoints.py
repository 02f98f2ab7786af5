"""The models, vocabularies and embeddings in fairseq checkpoints."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ..checkpoint import Checkpoint
from ..errors import UserError, first_line


def open_model(path: str | Path) -> dict[str, Any]:
    """A checkpoint, as of `open_checkpoint`, of which all is of the kind that the commands read.

    Raises:
        UserError: as `open_checkpoint` and `check_kinds`.
    """
    return Checkpoint(path).state


def check_language_model(path: str | Path, data: str | Path, vocabulary: int) -> int:
    """Sees, without building it, that a checkpoint is a language model over the dictionary of `data`.

    Returns:
        The tokens per block that it was trained with.

    Raises:
        UserError: as `open_model`; another task; another number of tokens than `vocabulary`, that of `data`.
    """
    state = open_model(path)
    task = task_options(state)
    if task.get("_name") != "language_modeling":
        raise UserError(f"{path}: found a model of the task {task.get('_name')}; expected language_modeling")
    for name in ("decoder.embed_tokens.weight", "decoder.output_projection.weight"):
        if name in state["model"]:
            check_vocabulary(path, state["model"][name], data, vocabulary)
    tokens = task.get("tokens_per_sample") or 1024
    if not isinstance(tokens, int):
        raise UserError(f"{path}: found {tokens!r} for tokens_per_sample; expected a number")
    return tokens


def check_vocabulary(path: str | Path, embedding: Tensor, data: str | Path, vocabulary: int) -> None:
    """Refuses an embedding (V, D) of another number of tokens than the dictionary of `data`.

    Raises:
        UserError: V is not `vocabulary`, or it is no matrix.
    """
    if not isinstance(embedding, Tensor) or embedding.dim() != 2:
        found = f"shape {tuple(embedding.shape)}" if isinstance(embedding, Tensor) else type(embedding).__name__
        raise UserError(f"{path}: found an embedding of {found}; expected a matrix")
    if len(embedding) != vocabulary:
        raise UserError(
            f"{path}: found a vocabulary of {len(embedding)} tokens, but {data} has {vocabulary}; "
            "pass the data folder that the model was trained with"
        )


def load_model(path: str | Path, data: str | Path, overrides: dict[str, Any] | None = None) -> tuple[nn.Module, Any]:
    """A model in evaluation mode with its task, which reads its dictionary from `data`.

    Args:
        path: a fairseq checkpoint.
        data: a folder of `fairseq-preprocess`, with the dictionary that the model was trained with.
        overrides: values of the checkpoint's configuration to replace, by name.

    Raises:
        UserError: as `open_model`; or fairseq cannot build the model that the checkpoint describes.
    """
    state = open_model(path)
    try:
        return _build(state, {"data": str(data), **(overrides or {})})
    except Exception as error:  # fairseq raises whatever it likes, bare exceptions among them
        raise UserError(
            f"{path}: fairseq cannot build its model from it ({first_line(error)}); expected one of "
            "a registered architecture, and the data folder that it was trained with"
        ) from error


def _build(state: dict[str, Any], overrides: dict[str, Any]) -> tuple[nn.Module, Any]:
    from fairseq import checkpoint_utils, tasks
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf, overwrite_args_by_name
    from omegaconf import OmegaConf

    from .. import models  # noqa: F401 — importing registers those with the factorised output layer

    if state.get("cfg") is not None:
        state["cfg"] = OmegaConf.create(state["cfg"], flags={"allow_objects": True})
    else:
        state["cfg"] = convert_namespace_to_omegaconf(state["args"])
    overwrite_args_by_name(state["cfg"], overrides)
    state = checkpoint_utils._upgrade_state_dict(state)
    task = tasks.setup_task(state["cfg"].task, from_checkpoint=True)
    model = task.build_model(state["cfg"].model)
    model.load_state_dict(state["model"], strict=True, model_cfg=state["cfg"].model)
    return model.eval(), task


def model_options(state: dict[str, Any]) -> dict[str, Any]:
    """The options of the model in a checkpoint; to change them is to change the checkpoint's."""
    options = state["cfg"]["model"] if state.get("cfg") else state["args"]
    return options if isinstance(options, dict) else vars(options)


def options_of_model(path: str | Path, state: dict[str, Any]) -> dict[str, Any]:
    """As `model_options`, of a checkpoint that may have none.

    Raises:
        UserError: it has none.
    """
    try:
        return model_options(state)
    except (KeyError, TypeError) as error:
        raise UserError(f"{path}: found no options of its model; expected a checkpoint of fairseq-train") from error


def task_options(state: dict[str, Any]) -> dict[str, Any]:
    """The options of the task in a checkpoint, with its name as `_name`."""
    return _options(state, "task")


def criterion_options(state: dict[str, Any]) -> dict[str, Any]:
    """The options of the criterion in a checkpoint, with its name as `_name`."""
    return _options(state, "criterion")


def _options(state: dict[str, Any], part: str) -> dict[str, Any]:
    options = state.get("cfg") or vars(state["args"])
    if not isinstance(options, dict):
        return {}
    found = options.get(part, {})
    if isinstance(found, argparse.Namespace):  # of what an older fairseq configures
        found = vars(found)
    return found if isinstance(found, dict) else {**options, "_name": found}


def check_finite(path: str | Path, parameters: dict[str, Tensor]) -> None:
    """Refuses the parameters of a diverged run.

    Raises:
        UserError: one of them, which are given by their names, has an infinity or NaN.
    """
    bad = next((name for name, value in parameters.items() if not value.isfinite().all()), None)
    if bad is not None:
        raise UserError(f"{path}: found an infinity or NaN in {bad}: a diverged run; take an earlier checkpoint")
