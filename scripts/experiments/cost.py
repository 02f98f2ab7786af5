"""What a training takes: tokens per update, GPU hours and disk space, estimated from its configuration.

Only the standard library is imported here, so that --dry-run answers at once and in a fresh clone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from ..training.cluster import Batches, split
from .experiment import ROOT, Corpus, Experiment, Model, Workspace
from .training import is_trained, overrides_of

FLOPS = 50e12
"""Floating-point operations per second that are assumed of a GPU in half precision, sustained."""
NOT_RUN = (
    "The published scale has not been run with this package yet. Hours are estimates: 6 floating-point operations per "
    "parameter and token, at a sustained 50 TFLOP/s (half precision)."
)


@dataclass(frozen=True)
class Cost:
    """What a training takes.

    Args:
        batches: of an update.
        updates: number of updates.
        parameters: number of parameters.
        disk: bytes of its checkpoints, with Adam's state: 12 bytes per parameter each.
    """

    batches: Batches
    updates: int
    parameters: int
    disk: int

    @property
    def tokens(self) -> int:
        """Number of tokens of the whole training."""
        return self.updates * self.batches.tokens

    @property
    def gpu_hours(self) -> float:
        """Hours on one GPU, or the sum over several."""
        return 6 * self.parameters * self.tokens / FLOPS / 3600


def settings(file: Path, overrides: Sequence[str] = ()) -> dict[str, str]:
    """The settings of a configuration as text, by names such as `optimization.max_update`.

    This reads the part of YAML and of hydra in which configs/ is written: sections with options, and a list of defaults
    after `_self_`. A test compares it with hydra.

    Args:
        file: the configuration.
        overrides: KEY=VALUE, also of a default (`size=tiny`).
    """
    given = dict(override.lstrip("+").split("=", 1) for override in overrides)
    found: dict[str, str] = {}
    defaults: list[Path] = []
    section, size = "", ""
    for line in file.read_text(encoding="utf-8").splitlines():
        if default := re.fullmatch(r"  - (?:optional )?(?:([\w-]+): )?([^\s#]+)", line.rstrip()):
            group, name = default.groups()
            if group == "size":
                size = given.get("size", name)
            if name != "_self_":
                defaults.append(Path(group or "", size if group == "size" else name.replace("${size}", size)))
        elif option := re.match(r"(  )?([\w-]+): *([^#]*)", line):
            indent, key, value = option.groups()
            section = section if indent else key
            if indent and value.strip():
                found[f"{section}.{key}"] = value.strip()
    for default in defaults:
        path = file.parent / f"{default}.yaml"
        found |= settings(path) if path.is_file() else {}
    return found | given


def cost_of(workspace: Workspace, model: Model, gpus: int) -> Cost:
    """What a training takes at the scale of a workspace.

    Args:
        workspace: with the scale and the overrides.
        model: to be trained.
        gpus: number of GPUs.
    """
    found = settings(ROOT / "configs" / f"{model.config}.yaml", overrides_of(workspace, model))
    max_tokens, frequency = int(found["dataset.max_tokens"]), int(found["optimization.update_freq"].strip("[]"))
    given = {override.lstrip("+").partition("=")[0] for override in workspace.overrides}
    if given & {"dataset.max_tokens", "optimization.update_freq"}:
        batches = Batches(gpus, max_tokens, frequency)  # train.sh takes them as they are
    else:
        batches = split(max_tokens * frequency, gpus, max_tokens, int(found.get("task.tokens_per_sample", 1)))
    if "optimization.max_update" in found:
        updates = int(found["optimization.max_update"])
    else:
        updates = int(found["optimization.max_epoch"]) * math.ceil(model.corpus.tokens / batches.tokens)
    kept = int(found.get("checkpoint.keep_interval_updates", 0))
    if kept < 0:  # all of them
        kept = updates // int(found["checkpoint.save_interval_updates"])
    parameters = _parameters(found, model.corpus.entries)
    return Cost(batches, updates, parameters, 12 * parameters * (kept + 2))  # the best and the last checkpoint, too


def _parameters(found: Mapping[str, str], entries: int) -> int:
    """The number of weights of the matrices of a model: biases and normalization are less than 1% of them."""
    dimension = int(found.get("model.decoder_embed_dim", 512))
    shared = "true" in (found.get("model.share_decoder_input_output_embed"), found.get("model.share_all_embeddings"))
    total = entries * dimension * (1 if shared else 2)
    if "model.decoder_hidden_size" in found:  # AWD-LSTM, whose embeddings are always tied
        inner = [int(found["model.decoder_hidden_size"])] * (int(found["model.decoder_layers"]) - 1)
        sizes = [dimension, *inner, dimension]
        return entries * dimension + sum(4 * (n + m) * m for n, m in pairwise(sizes))
    for side, attentions in (("encoder", 1), ("decoder", 2 if "model.encoder_layers" in found else 1)):
        if f"model.{side}_layers" in found:
            width, inner = int(found[f"model.{side}_embed_dim"]), int(found[f"model.{side}_ffn_embed_dim"])
            total += int(found[f"model.{side}_layers"]) * (4 * attentions * width**2 + 2 * width * inner)
    return total


def described(key: str, experiment: Experiment, workspaces: Sequence[Workspace], gpus: int) -> list[str]:
    """Lines on what the missing trainings of an experiment take, and on their sum.

    Args:
        key: name of the entry.
        experiment: a table or figure.
        workspaces: one per seed.
        gpus: number of GPUs of each training.
    """
    on_cpu = workspaces[0].scale == "tiny"
    unit = "process(es)" if on_cpu else "GPU(s)"
    lines, hours, disk = [], 0.0, 0.0
    corpora: dict[str, Corpus] = {}
    for workspace, model in experiment.trainings(workspaces):
        if workspace.scale not in model.scales or is_trained(workspace, model):
            continue
        corpora[model.corpus.name] = model.corpus
        try:
            cost = cost_of(workspace, model, gpus)
        except (KeyError, ValueError):  # KEY=VALUE of the command line may be anything that hydra takes
            lines.append(f"{workspace.name(model)}: not estimated")
            continue
        hours, disk = hours + cost.gpu_hours, disk + cost.disk
        line = (
            f"{workspace.name(model)}: {cost.batches.tokens:,} tokens per update = {gpus} {unit} x "
            f"{cost.batches.max_tokens:,} x {cost.batches.update_freq}, {cost.updates:,} updates"
        )
        if not on_cpu:
            line += (
                f", {cost.tokens / 1e9:.2f} billion tokens, {cost.parameters / 1e6:.0f} M parameters, "
                f"{cost.gpu_hours:.1f} GPU hours, {cost.disk / 1e9:.1f} GB of checkpoints"
            )
        lines.append(line)
    if not lines:
        return [f"{key}: nothing to train at --scale {workspaces[0].scale}"]
    trainings = f"{key}: {len(lines)} training{'s' if len(lines) > 1 else ''}"
    if on_cpu:
        return [*lines, f"{trainings} on a CPU"]
    data = sum(corpus.disk for corpus in corpora.values())
    wall = f", {_rounded(hours / gpus)} hours on {gpus} GPUs" if gpus > 1 else ""
    total = (
        f"{trainings}, {_rounded(hours)} GPU hours{wall}; {_rounded(disk / 1e9)} GB of checkpoints, "
        f"{_rounded(data / 1e9)} GB of data ({', '.join(corpora)})"
    )
    return [*lines, total]


def _rounded(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"
