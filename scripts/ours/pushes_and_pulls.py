"""Measures how strongly Adam pushes the rows of rare tokens, relative to pulling them, at the end of a training.

    python scripts/ours/pushes_and_pulls.py RUN/checkpoint_last.pt … --data DATA --json FILE --picture FILE.png

The checkpoints are language models of fairseq-train, trained by plain likelihood with `adam` or `embedding_adam` in
float32, with the state of the optimizer. Batches of the training split are taken as updates of their own: gradients
are formed and clipped as in training, enter the second moment v of the checkpoint, and are divided by √v. Printed are,
for each frequency group, N, the ratio by the formula, and the measured one; the JSON has them by octaves of occurrences
too (docs/which-cure.md).
"""

import argparse
import itertools
import math
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor
from tqdm import tqdm

import agg_fairseq
from agg_fairseq.checkpoints import Checkpoint
from agg_fairseq.checkpoints.fairseq_checkpoint import options_of
from agg_fairseq.errors import UserError
from agg_fairseq.evaluation.inputs import load_vocabulary
from agg_fairseq.fairseq_glue import output_layer as layers
from agg_fairseq.files import write_json
from agg_fairseq.functional import gated_cross_entropy
from agg_fairseq.functional.early_gradients import CHUNK_ELEMENTS
from agg_fairseq.models import build_model
from agg_fairseq.names import unique_names
from agg_fairseq.plots import style

TERMS = ("label_smoothing", "ul_alpha", "adv_epsilon", "cosreg_gamma")


class PushPull:
    r"""Movements of the rows of W along the mean feature, by pushes and by pulls.

    The gradient of the likelihood into row k has two parts. Where k is the target y_i, it is pulled to the features of
    that position; everywhere else it is pushed away:

    .. math::
        \mathrm{pull}_k = \sum_{i: y_i = k} (P_{ik} - 1) H_i, \qquad \mathrm{push}_k = \sum_{i: y_i \ne k} P_{ik} H_i

    Adam multiplies both by :math:`s_k = 1 / (\sqrt{v_k} + \epsilon)` (momentum only spreads them over later updates).
    With u the direction of the mean feature, `ratio` says how much more that favors pushes, over the rows of a group
    and all updates that were added:

    .. math::
        \frac{\sum (\mathrm{push}_k \odot s_k) \cdot u}{\sum \mathrm{push}_k \cdot u} \Big/
        \frac{\sum (\mathrm{pull}_k \odot s_k) \cdot u}{\sum \mathrm{pull}_k \cdot u}

    It is the B/A of `agg_fairseq.functional.adam_memory`, measured; 1 for gradient descent.

    Args:
        rows: V.
    """

    def __init__(self, rows: int) -> None:
        self.sums = torch.zeros(4, rows, dtype=torch.float64)  # push, pull, push ⊙ s, pull ⊙ s; each times u

    def add(self, parts: tuple[Tensor, Tensor], direction: Tensor, scale: Tensor) -> None:
        """Adds an update.

        Args:
            parts: as of `push_and_pull`, of all its positions.
            direction: (D,), u; its length does not matter.
            scale: (V, D), s.
        """
        along = torch.stack([*parts, *(part * scale for part in parts)]) @ direction  # 4 x V
        self.sums += along.double().cpu()

    def ratio(self, tokens: Tensor | Sequence[int]) -> float | None:
        """The ratio over the rows of these tokens; None if none of them was a target."""
        push, pull, push_step, pull_step = self.sums[:, tokens].sum(1)
        ratio = ((push_step / push) / (pull_step / pull)).item()
        return ratio if math.isfinite(ratio) else None


@torch.no_grad()
def push_and_pull(
    features: Tensor, weight: Tensor, target: Tensor, bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The two parts (V, D) of the gradient of the summed likelihood into W: their sum is the gradient.

    Args:
        features: (N, D), H.
        weight: (V, D), W.
        target: (N,) int64 in [0, V).
        bias: (V,) of the output layer.
    """
    push, pull = torch.zeros_like(weight), torch.zeros_like(weight)
    rows = max(1, CHUNK_ELEMENTS // len(weight))
    for h, y in zip(features.split(rows), target.split(rows), strict=True):
        probabilities = torch.nn.functional.linear(h, weight, bias).softmax(1)  # n x V
        of_target = probabilities.gather(1, y[:, None])  # n x 1
        pull.index_add_(0, y, (of_target - 1) * h)
        push.addmm_(probabilities.scatter_(1, y[:, None], 0.0).T, h)
    return push, pull


def push_to_pull(updates_per_appearance: float, beta2: float) -> float:
    """B/A, 1 or more: how much more strongly Adam makes pushes, relative to pulls, than they are in the gradient.

    Infinity for x of 1 or more, where assumption 3 cannot hold: the pushes themselves then bound the ratio.

    Args:
        updates_per_appearance: N, the mean number of updates from one appearance of the token to the next.
        beta2: β₂ of Adam, in [0, 1).

    Examples:
        >>> push_to_pull(100, beta2=0.999)
        1.0526315789473684
    """
    x = updates_per_appearance * (1 - beta2) / 2
    return 1 / (1 - x) if x < 1 else math.inf


def compared(
    tokens: torch.Tensor, balance: PushPull, rates: torch.Tensor, forgotten: torch.Tensor
) -> dict[str, float | None]:
    """The ratio by the formula and as measured over the tokens that occur; None where it is not defined."""
    tokens = tokens[rates[tokens] > 0]
    if not len(tokens):
        return dict.fromkeys(("updates_per_occurrence", "x", "push_to_pull", "push_to_pull_measured"))
    n, share = 1 / rates[tokens].mean().item(), forgotten[tokens].mean().item()
    formula = push_to_pull(n, 1 - share)
    return {
        "updates_per_occurrence": n,
        "x": n * share / 2,
        "push_to_pull": formula if formula < math.inf else None,
        "push_to_pull_measured": balance.ratio(tokens),
    }


def check_training(checkpoint: Checkpoint) -> None:
    """UserError for a training whose gradients or second moments are formed in another way than here."""
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
        *((criterion.get(term), f"--{term} {criterion.get(term)}", "plain likelihood") for term in TERMS),
        (optimization.get("sentence_avg"), "--sentence-avg", "a mean over tokens"),
        (adam not in ("adam", "embedding_adam"), f"--optimizer {adam}", "adam or embedding_adam"),
        (set(frequency) != {1}, f"--update-freq {','.join(map(str, frequency))}", "1"),
        (size > 1, f"--distributed-world-size {size}", "one worker"),
        *((common.get(mode), f"--{mode}", "float32") for mode in half),
    ):
        if is_wrong:
            raise UserError(
                f"{checkpoint}: found a training with {found}; expected {expected}; give a model that was trained so"
            )


def measured(
    name: str, checkpoint: Checkpoint, data: str | Path, counts: torch.Tensor, batches: int
) -> tuple[PushPull, torch.Tensor, float]:
    """The sums over batches, the share (V,) of v that an update replaces, and the mean number of targets of a batch."""
    model, task = build_model(checkpoint, data)
    dataset, optimization = (options_of(checkpoint.state, section) for section in ("dataset", "optimization"))
    task.load_dataset("train")
    iterator = task.get_batch_iterator(
        task.dataset("train"), max_tokens=dataset["max_tokens"], max_sentences=dataset["batch_size"],
        max_positions=model.max_positions(), ignore_invalid_inputs=True,
        required_batch_size_multiple=dataset["required_batch_size_multiple"], seed=1,
    )  # fmt: skip
    samples = list(itertools.islice(iterator.next_epoch_itr(), min(batches, len(iterator))))
    layer = layers.output_layer(model)
    parameters = [parameter for parameter in model.train().parameters() if parameter.requires_grad]
    saved = checkpoint.state["last_optimizer_state"]
    group = saved["param_groups"][-1]
    # With a group of its own, the output embedding is the last parameter; else it has its place among all.
    place = next((index for index, parameter in enumerate(parameters) if parameter is layer.weight), None)
    state = saved["state"][group["params"][0] if len(saved["param_groups"]) > 1 else place]
    beta2 = group["betas"][1] if group.get("beta2") is None else group["beta2"]
    forgotten = (1 - beta2) * torch.ones(len(counts), dtype=torch.float64)
    zeros = (1 - forgotten[:, None]) ** (state["step"] + 1)  # as Adam corrects v, by row
    correction = (1 - zeros).sqrt().float()

    balance, targets = PushPull(len(counts)), 0
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(1)  # of dropout: the same for each model
        for sample in tqdm(samples, desc=name, unit="batch", disable=None, leave=False):
            model.zero_grad()
            features, weight, bias = layers.features_of(model, sample["net_input"], "pushes and pulls")
            kept = sample["target"] != task.target_dictionary.pad()
            loss = gated_cross_entropy(features[kept], weight, sample["target"][kept], bias=bias).loss
            (loss / kept.sum()).backward()
            targets += int(kept.sum())
            torch.nn.utils.clip_grad_norm_(parameters, optimization["clip_norm"] or math.inf)
            v = state["exp_avg_sq"].lerp(weight.grad.square(), forgotten[:, None].float())
            parts = push_and_pull(features[kept].detach(), weight.detach(), sample["target"][kept], bias)
            balance.add(parts, features[kept].mean(0).detach(), correction / (v.sqrt() + group["eps"]))
    return balance, forgotten, targets / len(samples)


def main() -> None:
    """Measures, prints and draws."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoints", nargs="+")
    parser.add_argument("--data", required=True)
    parser.add_argument("--name", nargs="+")
    parser.add_argument("--batches", type=int, default=50)
    parser.add_argument("--json")
    parser.add_argument("--picture")
    options = parser.parse_args()
    agg_fairseq.register()
    names = unique_names(options.checkpoints, options.name)
    models = {name: Checkpoint(path) for name, path in zip(names, options.checkpoints, strict=True)}
    results = ratios(models, options.data, options.batches)
    for name, row in results.items():
        for group, of_group in row["groups"].items():
            print(name, group, *(f"{key}={value:.4g}" for key, value in of_group.items() if value is not None))
    if options.json:
        write_json(options.json, results)
    if options.picture:
        draw(results, options.picture)


def ratios(models: dict[str, Checkpoint], data: str, batches: int) -> dict[str, dict]:
    """For each model the `groups`, by name, and the `octaves` of 1, 2 to 3, 4 to 7, … occurrences."""
    for checkpoint in models.values():
        check_training(checkpoint)
    vocabulary = load_vocabulary(models, data)
    counts, groups = vocabulary.counts.double(), vocabulary.groups("types")
    octaves = counts.log2().floor()  # -inf for tokens that do not occur
    results = {}
    for name, checkpoint in models.items():
        balance, forgotten, tokens_per_update = measured(name, checkpoint, data, vocabulary.counts, batches)
        rates = counts / counts.sum() * tokens_per_update
        results[name] = {
            "groups": {group: compared(groups.members(group), balance, rates, forgotten) for group in groups.names},
            "octaves": [
                compared((octaves == octave).nonzero()[:, 0], balance, rates, forgotten)
                for octave in octaves[counts > 0].unique().tolist()
            ],
        }
    return results


def draw(results: dict[str, dict], path: str) -> None:
    """Draws the ratio against x = N (1 − β₂)/2: a point per octave, and 1/(1 − x)."""
    figure, (axis,) = style.new_panels(width=7.0, height=4.0)
    x = [10 ** (power / 20) for power in range(-60, 0)]
    axis.plot(x, [1 / (1 - value) for value in x], color="0.25", label="1/(1 − x)")
    for index, (name, row) in enumerate(results.items()):
        points = [point for point in row["octaves"] if point["push_to_pull_measured"] is not None]
        ys = [point["push_to_pull_measured"] for point in points]
        style.line(axis, index, [point["x"] for point in points], ys, name)
    style.finish(
        axis, xscale="log", yscale="log", xlim=(1e-3, None), xlabel="x = N (1 − β₂) / 2", ylabel="pushes/pulls"
    )
    style.finish_figure(figure).savefig(path)


if __name__ == "__main__":
    main()
