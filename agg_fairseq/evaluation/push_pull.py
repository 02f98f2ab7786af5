"""How strongly Adam pushes the rows of rare tokens, relative to pulling them, at the end of a training."""

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from ..checkpoints import Checkpoint
from ..checkpoints.fairseq_checkpoint import options_of
from ..errors import UserError
from ..functional import gated_cross_entropy, push_to_pull
from ..functional.terms import EMBEDDING_TERMS, POSITION_TERMS
from ..metrics.groups import GROUPS
from ..metrics.push_pull import PushPull, push_and_pull
from ..result import Result
from .inputs import load_vocabulary

COLUMNS = {"updates_per_occurrence": GROUPS, "push_to_pull": GROUPS, "push_to_pull_measured": GROUPS}
TERMS = ("label_smoothing", "center_output", *(term.option for term in (*EMBEDDING_TERMS, *POSITION_TERMS)))


def push_pull(
    models: Mapping[str, Checkpoint], data: str | Path, *, batches: int = 50, groups: str = "types"
) -> Result:
    """Measures the ratio of pushes to pulls that Adam makes of the gradients into the rows of the output embedding.

    From each checkpoint, batches of the training split are taken as updates of their own: gradients are formed and
    clipped as in training, enter the second moment v of the checkpoint, and are divided by √v (`metrics.PushPull`).
    Beside it stands the ratio that `functional.push_to_pull` derives from β₂ and the mean N of the group; where the
    memory counts appearances, a row's 1 − β₂ is multiplied by its rate.

    Args:
        models: language models of fairseq, opened with their training state, trained by plain likelihood with `adam` or
            `embedding_adam`, in float32, without --update-freq and on one worker. UserError names the first option that
            says otherwise.
        batches: number of batches, at least 1, and at most those of an epoch; a forward and backward pass each, and two
            products more in the output layer.

    Returns:
        Result: a row per model; for each group `updates_per_occurrence` (N), `push_to_pull` by the formula (None where
        x is 1 or more) and `push_to_pull_measured`. `octaves` has the same and x for tokens of 1, 2 to 3, 4 to 7, …
        occurrences, which `plots.pushes_and_pulls` draws.

    Reference: none; a measure of our own (docs/which-cure.md).
    """
    for checkpoint in models.values():
        _check_training(checkpoint)
    vocabulary = load_vocabulary(models, data)
    counts, frequency_groups = vocabulary.counts.double(), vocabulary.groups(groups)
    members = {group: frequency_groups.members(group) for group in GROUPS}
    octaves = counts.log2().floor()  # -inf for tokens that do not occur
    rows: dict[str, Any] = {}
    for name, checkpoint in models.items():
        balance, forgotten, tokens_per_update = _measured(name, checkpoint, data, vocabulary.counts, batches)
        rates = counts / counts.sum() * tokens_per_update
        of_groups = {group: _compared(tokens, balance, rates, forgotten) for group, tokens in members.items()}
        rows[name] = {
            "path": str(checkpoint),
            **{measure: {group: of_groups[group][measure] for group in GROUPS} for measure in COLUMNS},
            "octaves": [
                _compared((octaves == octave).nonzero()[:, 0], balance, rates, forgotten)
                for octave in octaves[counts > 0].unique().tolist()
            ],
        }
    return Result(rows, COLUMNS, {"split": "train", "batches": batches, "groups": groups})


def _compared(
    tokens: torch.Tensor, balance: PushPull, rates: torch.Tensor, forgotten: torch.Tensor
) -> dict[str, float | None]:
    """The ratio by the formula and as measured over the tokens that occur; None where it is not defined."""
    tokens = tokens[rates[tokens] > 0]
    if not len(tokens):
        return dict.fromkeys((*COLUMNS, "x"))
    n, share = 1 / rates[tokens].mean().item(), forgotten[tokens].mean().item()
    formula = push_to_pull(n, 1 - share)
    return {
        "updates_per_occurrence": n,
        "x": n * share / 2,
        "push_to_pull": formula if formula < math.inf else None,
        "push_to_pull_measured": balance.ratio(tokens),
    }


def _check_training(checkpoint: Checkpoint) -> None:
    """UserError for a training whose gradients or second moments are formed in another way than here."""
    from ..criterions.options import flag  # imports fairseq

    common, criterion, optimization, optimizer, workers = (
        options_of(checkpoint.state, section)
        for section in ("common", "criterion", "optimization", "optimizer", "distributed_training")
    )
    task, loss, adam = checkpoint.task_options.get("_name"), criterion.get("_name"), optimizer.get("_name")
    frequency, size = optimization.get("update_freq", [1]), workers.get("distributed_world_size", 1)
    cutoff = checkpoint.model_options.get("adaptive_softmax_cutoff")
    half = ("fp16", "bf16", "amp", "memory_efficient_fp16", "memory_efficient_bf16")
    for is_wrong, found, expected in (
        (not checkpoint.state.get("cfg"), "options of an older fairseq", "a checkpoint of fairseq 0.12"),
        (not checkpoint.is_language_model, f"--task {task}", "a language model"),
        (cutoff is not None, f"--adaptive-softmax-cutoff {cutoff}", "one softmax over all tokens"),
        (loss not in ("mle", "cross_entropy"), f"--criterion {loss}", "mle or cross_entropy"),
        *((criterion.get(term), f"{flag(term)} {criterion.get(term)}", "plain likelihood") for term in TERMS),
        (optimization.get("sentence_avg"), "--sentence-avg", "a mean over tokens"),
        (adam not in ("adam", "embedding_adam"), f"--optimizer {adam}", "adam or embedding_adam"),
        (set(frequency) != {1}, f"--update-freq {','.join(map(str, frequency))}", "1"),
        (size > 1, f"--distributed-world-size {size}", "one worker"),
        *((common.get(mode), flag(mode), "float32") for mode in half),
    ):
        if is_wrong:
            raise UserError(
                f"{checkpoint}: found a training with {found}; expected {expected}; give a model that was trained so"
            )


def _state_of_adam(
    checkpoint: Checkpoint, parameters: Sequence[torch.Tensor], weight: torch.Tensor
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The state of the output embedding in the checkpoint, and its group of parameters."""
    saved = checkpoint.state.get("last_optimizer_state")
    if not saved:
        raise UserError(
            f"{checkpoint}: found no state of the optimizer; expected a checkpoint that fairseq-train saved without "
            "--no-save-optimizer-state"
        )
    group = saved["param_groups"][-1]
    # With a group of its own, the output embedding is the last parameter; else it has its place among all.
    place = next((index for index, parameter in enumerate(parameters) if parameter is weight), None)
    state = saved["state"].get(group["params"][0] if len(saved["param_groups"]) > 1 else place, {})
    shape, expected = (tuple(tensor.shape) for tensor in (state.get("exp_avg_sq", torch.zeros(0)), weight))
    if shape != expected:
        raise UserError(
            f"{checkpoint}: found second moments of shape {shape} of the output embedding; expected {expected}, of an "
            "output embedding that --optimizer adam or embedding_adam trained"
        )
    return state, group


def _measured(
    name: str, checkpoint: Checkpoint, data: str | Path, counts: torch.Tensor, batches: int
) -> tuple[PushPull, torch.Tensor, float]:
    """The sums over batches, the share (V,) of v that an update replaces, and the mean number of targets of a batch."""
    from ..fairseq_glue import output_layer as layers
    from ..models.from_checkpoint import build_model

    model, task = build_model(checkpoint, data)
    dataset, optimization = (options_of(checkpoint.state, section) for section in ("dataset", "optimization"))
    task.load_dataset("train")
    iterator = task.get_batch_iterator(
        task.dataset("train"), max_tokens=dataset["max_tokens"], max_sentences=dataset["batch_size"],
        max_positions=model.max_positions(), ignore_invalid_inputs=True,
        required_batch_size_multiple=dataset["required_batch_size_multiple"], seed=1,
    )  # fmt: skip
    if batches < 1:
        raise UserError(f"--batches: expected at least 1, got {batches}")
    samples = list(itertools.islice(iterator.next_epoch_itr(), min(batches, len(iterator))))
    layer = layers.output_layer(model, samples[0]["net_input"], {len(counts)}, "push-pull")
    parameters = [parameter for parameter in model.train().parameters() if parameter.requires_grad]
    state, group = _state_of_adam(checkpoint, parameters, layer.weight)
    beta2 = group["betas"][1] if group.get("beta2") is None else group["beta2"]
    forgotten = (1 - beta2) * torch.ones(len(counts), dtype=torch.float64)
    if group.get("rates") is not None:
        forgotten *= group["rates"]
    zeros = state.get("share_of_zeros", 0) * (1 - forgotten[:, None])  # as `EmbeddingAdam` corrects v: by row
    correction = (1 - zeros).sqrt().float()

    balance, targets = PushPull(len(counts)), 0
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(1)  # of dropout: the same for each model
        for sample in tqdm(samples, desc=name, unit="batch", disable=None, leave=False):
            model.zero_grad()
            features, weight, bias = layers.features_of(model, sample["net_input"], layer)
            kept = sample["target"] != task.target_dictionary.pad()
            loss = gated_cross_entropy(features[kept], weight, sample["target"][kept], bias=bias).loss
            (loss / kept.sum()).backward()
            targets += int(kept.sum())
            torch.nn.utils.clip_grad_norm_(parameters, optimization["clip_norm"] or math.inf)
            v = state["exp_avg_sq"].lerp(weight.grad.square(), forgotten[:, None].float())
            parts = push_and_pull(features[kept].detach(), weight.detach(), sample["target"][kept], bias)
            balance.add(parts, features[kept].mean(0).detach(), correction / (v.sqrt() + group["eps"]))
    return balance, forgotten, targets / len(samples)
