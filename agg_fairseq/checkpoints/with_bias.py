"""Writes the checkpoint of a model to whose logits a bias is added."""

import copy
from pathlib import Path

import torch
from torch import Tensor

from ..files import atomic_write
from ..functional import log_unigram
from .fairseq_checkpoint import Checkpoint

LAYER = "decoder.output_projection"


def write_with_bias(
    model: Checkpoint, output: str | Path, bias: Tensor, counts: Tensor, name: str, new_name: str
) -> None:
    """Writes the checkpoint of a model with a learned log-unigram bias, without the state of the
    optimizer and the best validation.

    Args:
        model: with a log-unigram bias or without.
        bias: (V,) added to the logits of the model.
        counts: (V,) of the log-unigram bias, for a model without one.
        name: registered name of the model, with which that of its architecture begins.
        new_name: the same of the model with a log-unigram bias.
    """
    parameters = dict(model.parameters)
    if f"{LAYER}.counts" not in parameters:
        parameters[f"{LAYER}.counts"] = counts.double()  # as `UnigramLinear` saves them
        bias = bias - log_unigram(counts)  # which that layer adds
    elif f"{LAYER}.bias_shift" in parameters:
        bias = bias + parameters[f"{LAYER}.bias_shift"]
    parameters.pop("decoder.embed_out", None)  # as older versions of fairseq name it
    parameters[f"{LAYER}.weight"] = model.output_embedding.saved
    parameters[f"{LAYER}.bias_shift"] = bias.float()  # also in a half-precision model
    state = model.model_state() | {"model": parameters}
    for key in ("best", "val_loss"):
        state["extra_state"].pop(key, None)
    for key in ("cfg", "args"):
        state[key] = copy.deepcopy(model.state.get(key))
    options = state["cfg"]["model"] if state["cfg"] else state["args"]
    options = options if isinstance(options, dict) else vars(options)
    for key in ("_name", "arch"):
        if options.get(key):
            options[key] = new_name + options[key].removeprefix(name)
    options["unigram_bias"] = "learned"
    atomic_write(output, lambda temporary: torch.save(state, temporary))
