"""What trainings take: tokens per update, GPU hours and disk space, estimated from their configurations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ..command import ROOT
from ..training.configuration import Batches, as_written, batches_of, readable
from .experiment import Corpus, Experiment, Model, Workspace
from .training import is_trained, overrides_of

FLOPS = 50e12  # floating-point operations per second that are assumed of a GPU in half precision, sustained
NOT_RUN = (
    "The published scale has not been run with this package yet. Hours are estimates: 6 floating-point operations per "
    "parameter and token, at a sustained 50 TFLOP/s (half precision)."
)


@dataclass(frozen=True)
class Cost:
    """What a training takes."""

    batches: Batches  # of an update
    updates: int
    parameters: int
    disk: int  # bytes of its checkpoints, with Adam's state: 12 bytes per parameter each

    @property
    def tokens(self) -> int:
        """Number of tokens of the whole training."""
        return self.updates * self.batches.tokens

    @property
    def gpu_hours(self) -> float:
        """Hours on one GPU, or the sum over several."""
        return 6 * self.parameters * self.tokens / FLOPS / 3600


def cost_of(workspace: Workspace, model: Model, gpus: int) -> Cost:
    """What a training takes on a number of GPUs, at the scale and with the overrides of a workspace."""
    overrides = [readable(override) for override in overrides_of(workspace, model)]
    config = as_written(ROOT / "configs" / f"{model.config}.yaml", overrides)
    given = {override.lstrip("+").partition("=")[0] for override in workspace.overrides}
    batches = batches_of(config, gpus, given)
    updates = config.optimization.get("max_update")
    if updates is None:
        updates = config.optimization.max_epoch * math.ceil(model.corpus.tokens / batches.tokens)
    checkpoints = config.checkpoint.get("keep_interval_updates", 0)
    if checkpoints < 0:  # all of them
        checkpoints = updates // config.checkpoint.save_interval_updates
    parameters = _parameters(config.model, model.corpus.entries)
    checkpoints += 2  # the best and the last one
    return Cost(batches, updates, parameters, 12 * parameters * checkpoints)


def _parameters(model: Any, entries: int) -> int:
    """The number of weights of the matrices of a model: biases and normalization are less than 1% of them."""
    dimension = model.get("decoder_embed_dim", 512)
    if "decoder_hidden_size" in model:  # AWD-LSTM, whose embeddings are always tied
        sizes = [dimension, *[model.decoder_hidden_size] * (model.decoder_layers - 1), dimension]
        return entries * dimension + sum(4 * (n + m) * m for n, m in pairwise(sizes))
    shared = model.get("share_decoder_input_output_embed") or model.get("share_all_embeddings")
    total = entries * dimension * (1 if shared else 2)
    for side, attentions in (("encoder", 1), ("decoder", 2 if "encoder_layers" in model else 1)):
        if f"{side}_layers" in model:
            width, inner = model[f"{side}_embed_dim"], model[f"{side}_ffn_embed_dim"]
            total += model[f"{side}_layers"] * (4 * attentions * width**2 + 2 * width * inner)
    return total


def described(key: str, experiment: Experiment, workspaces: Sequence[Workspace], gpus: int) -> list[str]:
    """Lines on what the missing trainings of an entry take, with `gpus` each, and on their sum."""
    on_cpu = workspaces[0].scale == "tiny"
    gpus = 1 if on_cpu else gpus
    lines, hours, disk = [], 0.0, 0.0
    corpora: dict[str, Corpus] = {}
    for workspace, model in experiment.trainings(workspaces):
        if workspace.scale not in model.scales or is_trained(workspace, model):
            continue
        cost = cost_of(workspace, model, gpus)
        corpora[model.corpus.name] = model.corpus
        hours, disk = hours + cost.gpu_hours, disk + cost.disk
        line = f"{workspace.name(model)}: {cost.batches}, {cost.updates:,} updates"
        if not on_cpu:
            line += (
                f", {cost.tokens / 1e9:.2f} billion tokens, {cost.parameters / 1e6:.0f} M parameters, "
                f"{cost.gpu_hours:.1f} GPU hours, {cost.disk / 1e9:.1f} GB of checkpoints"
            )
        lines.append(line)
    trainings = f"{key}: {len(lines)} training{'' if len(lines) == 1 else 's'}"
    if on_cpu:
        return [*lines, f"{trainings} on a CPU"]
    data = sum(corpus.gigabytes for corpus in corpora.values())
    wall = f", {_rounded(hours / gpus)} hours on {gpus} GPUs" if gpus > 1 else ""
    total = f"{trainings}, {_rounded(hours)} GPU hours{wall}; {_rounded(disk / 1e9)} GB of checkpoints, "
    return [*lines, f"{total}{_rounded(data)} GB of data ({', '.join(corpora)})"]


def _rounded(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"
