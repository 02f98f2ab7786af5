"""The model of a checkpoint, built by fairseq."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairseq import checkpoint_utils, tasks
from fairseq.dataclass.utils import overwrite_args_by_name
from omegaconf import OmegaConf
from torch import nn

from ..awd_lstm import streams_task  # noqa: F401 — importing registers the task
from ..checkpoints import Checkpoint
from ..errors import UserError, first_line


def build_model(
    checkpoint: Checkpoint, data: str | Path, overrides: Mapping[str, Any] | None = None
) -> tuple[nn.Module, Any]:
    """Builds the model, in evaluation mode, and its task.

    Args:
        checkpoint: of any of fairseq's architectures, or of this package's.
        data: folder of `fairseq-preprocess`, with the dictionary that the model was trained with.
        overrides: values of the checkpoint's options to replace, by name.

    Raises:
        UserError: fairseq cannot build the model that the checkpoint describes.
    """
    state = dict(checkpoint.state)  # fairseq brings an older state up to date in place
    try:
        if state.get("cfg") is not None:
            state["cfg"] = OmegaConf.create(state["cfg"], flags={"allow_objects": True})
        state["args"] = copy.deepcopy(state.get("args"))
        state = checkpoint_utils._upgrade_state_dict(state)  # makes `cfg` of `args`, so the overrides come after it
        overwrite_args_by_name(state["cfg"], {"data": str(data), **(overrides or {})})
        task = tasks.setup_task(state["cfg"].task, from_checkpoint=True)
        model = task.build_model(state["cfg"].model, from_checkpoint=True)
        model.load_state_dict(dict(state["model"]), strict=True, model_cfg=state["cfg"].model)
        return model.eval(), task
    except Exception as error:  # fairseq raises whatever it likes, bare exceptions among them
        raise UserError(
            f"{checkpoint}: fairseq cannot build its model from it ({first_line(error)}); expected one of "
            "a registered architecture, and the data folder that it was trained with"
        ) from error
