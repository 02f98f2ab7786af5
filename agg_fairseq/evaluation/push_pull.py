"""How strongly Adam pushes the rows of rare tokens, relative to pulling them, at the end of a training."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from ..checkpoints import Checkpoint
from ..checkpoints.fairseq_checkpoint import options_of
from ..errors import UserError
from ..functional import gated_cross_entropy, push_to_pull
from ..metrics.groups import GROUPS
from ..metrics.push_pull import PushPull, push_and_pull
from ..optim import appearance_rates
from ..result import Result
from .inputs import load_vocabulary

COLUMNS = {"updates_per_occurrence": GROUPS, "push_to_pull": GROUPS, "push_to_pull_measured": GROUPS}


def push_pull(
    models: Mapping[str, Checkpoint], data: str | Path, *, batches: int = 50, groups: str = "types"
) -> Result:
    """Measures the ratio of pushes to pulls that Adam makes of the gradients into the rows of the output embedding.

    From each checkpoint, batches of the training split are taken as updates of their own: gradients are formed and
    clipped as in training, enter the second moment v of the checkpoint, and are divided by √v (`metrics.PushPull`).
    Beside it stands the ratio that `functional.push_to_pull` derives from β₂ and the mean N of the group.

    Args:
        models: language models of fairseq, opened with their training state, trained by
            plain likelihood, with `adam` or `embedding_adam`, in float32, without --update-freq and on one worker.
        batches: number of batches; a forward and backward pass each, and two products more in the output layer.

    Returns:
        Result: a row per model; for each group `updates_per_occurrence` (N), `push_to_pull` by the formula (None where
        x is 1 or more) and `push_to_pull_measured`.

    Reference: none; a measure of our own (docs/which-cure.md).
    """
    vocabulary = load_vocabulary(models, data)
    frequency_groups = vocabulary.groups(groups)
    occurring = vocabulary.counts > 0
    members = {group: frequency_groups.members(group) for group in GROUPS}
    members = {group: tokens[occurring[tokens]] for group, tokens in members.items()}
    rows: dict[str, Any] = {}
    for name, checkpoint in models.items():
        balance, beta2, tokens_per_update = _measured(name, checkpoint, data, vocabulary.counts, batches)
        rates = vocabulary.counts.double() / vocabulary.counts.sum() * tokens_per_update
        n = {group: 1 / rates[tokens].mean().item() for group, tokens in members.items()}
        formula = {group: push_to_pull(n[group], beta2) for group in GROUPS}
        rows[name] = {
            "path": str(checkpoint),
            "updates_per_occurrence": n,
            "push_to_pull": {group: value if value < math.inf else None for group, value in formula.items()},
            "push_to_pull_measured": {group: balance.ratio(tokens) for group, tokens in members.items()},
        }
    return Result(rows, COLUMNS, {"split": "train", "batches": batches, "groups": groups})


def _measured(
    name: str, checkpoint: Checkpoint, data: str | Path, counts: torch.Tensor, batches: int
) -> tuple[PushPull, float, float]:
    """The sums over batches, β₂ of the output embedding, and the mean number of targets of a batch."""
    from ..fairseq_glue import output_layer as layers
    from ..models.from_checkpoint import build_model

    model, task = build_model(checkpoint, data)
    dataset, optimization = (options_of(checkpoint.state, section) for section in ("dataset", "optimization"))
    optimizer = options_of(checkpoint.state, "optimizer")
    task.load_dataset("train")
    iterator = task.get_batch_iterator(
        task.dataset("train"), max_tokens=dataset["max_tokens"], max_positions=model.max_positions(), seed=1
    )
    samples = list(itertools.islice(iterator.next_epoch_itr(), batches))
    layer = layers.output_layer(model, samples[0]["net_input"], {len(counts)}, "push-pull")
    parameters = [parameter for parameter in model.train().parameters() if parameter.requires_grad]
    saved = checkpoint.state.get("last_optimizer_state") or {"param_groups": [{"params": []}], "state": {}}
    # With a group of its own, the output embedding is the last parameter; else it has its place among all.
    place = next(index for index, parameter in enumerate(parameters) if parameter is layer.weight)
    own = len(saved["param_groups"]) > 1
    second = saved["state"].get(saved["param_groups"][-1]["params"][0] if own else place, {}).get("exp_avg_sq")
    if second is None or second.shape != layer.weight.shape:
        raise UserError(f"{checkpoint}: found no second moments; expected --optimizer adam or embedding_adam")
    beta2 = optimizer.get("embedding_beta2") or saved["param_groups"][-1]["betas"][1]
    forgotten = torch.full((len(counts), 1), 1 - beta2)
    if optimizer.get("embedding_memory") == "appearances":
        forgotten *= appearance_rates(counts, updates=len(iterator))[:, None].float()

    balance, targets = PushPull(len(counts)), 0
    for sample in tqdm(samples, desc=name, unit="batch", disable=None, leave=False):
        model.zero_grad()
        features, weight, bias = layers.features_of(model, sample["net_input"], layer)
        kept = sample["target"] != task.target_dictionary.pad()
        loss = gated_cross_entropy(features[kept], weight, sample["target"][kept], bias=bias).loss
        (loss / kept.sum()).backward()
        targets += int(kept.sum())
        torch.nn.utils.clip_grad_norm_(parameters, optimization["clip_norm"] or math.inf)
        v = second.lerp(weight.grad.square(), forgotten)
        parts = push_and_pull(features[kept].detach(), weight.detach(), sample["target"][kept], bias)
        balance.add(parts, features[kept].mean(0).detach(), 1 / (v.sqrt() + 1e-8))
    return balance, beta2, targets / len(samples)
