"""The model of a checkpoint, built by fairseq; and the checkpoint of a sibling, a model with another output layer."""

import copy
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairseq import checkpoint_utils, tasks
from fairseq.dataclass.utils import overwrite_args_by_name
from omegaconf import OmegaConf
from torch import nn

from ..checkpoints import Checkpoint
from ..errors import UserError, first_line


def build_model(
    checkpoint: Checkpoint, data: str | Path, overrides: Mapping[str, Any] | None = None
) -> tuple[nn.Module, Any]:
    """Builds the model, of any architecture of fairseq or of this package, in evaluation mode, and its task.

    `data` has the dictionary that the model was trained with; `overrides` replace options of the checkpoint, by name.
    """
    state = dict(checkpoint.state)  # fairseq brings an older state up to date in place
    try:
        if state.get("cfg") is not None:
            state["cfg"] = OmegaConf.create(state["cfg"], flags={"allow_objects": True})
        if state.get("args") is not None:
            # How it was trained, which another program may have defined, makes no model. Options that fairseq did not
            # have yet, and refers to others for, it would take for true.
            trained_by = dict.fromkeys(("criterion", "optimizer", "lr_scheduler"))
            options = {"use_plasma_view": False, "tpu": False, **vars(state["args"]), **trained_by}
            state["args"] = Namespace(**options)
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


def sibling_state(checkpoint: Checkpoint, siblings: Mapping[str, str], expected: str, **options: Any) -> dict[str, Any]:
    """The contents of a checkpoint like `checkpoint`, for a model with another output layer; `model` is to be set.

    The state of the optimizer and the best validation are of the old model; both are left out.

    Args:
        checkpoint: where everything else is taken from; a UserError says if its model has no sibling.
        siblings: the model that each takes the place of, as fairseq names them; names of architectures begin with that.
        expected: names the models that have a sibling, for the error.
        options: of the new output layer.
    """
    from fairseq.models import ARCH_MODEL_NAME_REGISTRY

    name = checkpoint.model_options.get("_name") or checkpoint.model_options.get("arch") or "?"
    model = ARCH_MODEL_NAME_REGISTRY.get(name, name)
    if model not in siblings:
        raise UserError(f"{checkpoint}: found a model {name}; expected {expected}")
    if checkpoint.model_options.get("adaptive_softmax_cutoff") is not None:
        raise UserError(f"{checkpoint}: found an adaptive softmax; expected one softmax over all tokens")
    state = {**checkpoint.state, "model": None, "last_optimizer_state": None}
    state |= {key: copy.deepcopy(state.get(key)) for key in ("cfg", "args")}
    extra = state.get("extra_state") or {}
    state["extra_state"] = {key: extra[key] for key in extra if key not in ("best", "val_loss")}
    of_model = state["cfg"]["model"] if state["cfg"] else state["args"]
    of_model = of_model if isinstance(of_model, dict) else vars(of_model)
    names = {key: siblings[model] + of_model[key].removeprefix(model) for key in ("_name", "arch") if of_model.get(key)}
    of_model.update(names, **options)
    return state
