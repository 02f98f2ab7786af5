"""Measures how strongly Adam pushes the rows of rare tokens, relative to pulling them, at the end
of a training.

    python scripts/ours/pushes_and_pulls.py RUN/checkpoint_last.pt … --data DATA --picture FILE.png

The checkpoints are language models of fairseq-train, trained by plain likelihood with `adam` or
`embedding_adam` in float32 on one worker, a batch per update. Gradients of further batches are
formed and clipped as in training, enter the second moment v of the checkpoint, and are divided by
√v. Printed are N, x = N (1 − β₂)/2 and the ratio, for each frequency group and for each octave of
occurrences: 1, 2 to 3, 4 to 7, … (docs/why.md).
"""

import argparse
import itertools
import math

import torch
from torch import Tensor

import agg_fairseq
from agg_fairseq import plots
from agg_fairseq.checkpoints import Checkpoint
from agg_fairseq.errors import UserError
from agg_fairseq.evaluation.inputs import load_vocabulary
from agg_fairseq.fairseq_plugin import output_layer as layers
from agg_fairseq.fairseq_plugin.models import build_model
from agg_fairseq.functional import TERMS, SmoothedLikelihood, chunked
from agg_fairseq.metrics.next_token import chunk_rows
from agg_fairseq.names import unique_names
from agg_fairseq.plots import style

BATCHES = 50
OTHER_LOSSES = ("label_smoothing", *(term.option for term in TERMS))


@torch.no_grad()
def push_and_pull(
    features: Tensor, weight: Tensor, target: Tensor, bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    r"""The two parts (V, D) of the gradient of the summed likelihood into W, push and pull.

    .. math:: \mathrm{pull}_k = \sum_{i: y_i = k} (P_{ik} - 1) H_i, \qquad \mathrm{push}_k =
        \sum_{i: y_i \ne k} P_{ik} H_i

    Args:
        features: (N, D), H.
        weight: (V, D), W.
        target: (N,) int64 in [0, V).
        bias: (V,) of the output layer.
    """
    push, pull, rows = torch.zeros_like(weight), torch.zeros_like(weight), chunk_rows(len(weight))
    for h, y in zip(features.split(rows), target.split(rows), strict=True):
        probabilities = torch.nn.functional.linear(h, weight, bias).softmax(1)  # n x V
        target_probability = probabilities.gather(1, y[:, None])  # n x 1
        pull.index_add_(0, y, (target_probability - 1) * h)
        push.addmm_(probabilities.scatter_(1, y[:, None], 0.0).T, h)
    return push, pull


def movements(push: Tensor, pull: Tensor, scale: Tensor, direction: Tensor) -> Tensor:
    """push, pull, push ⊙ s and pull ⊙ s, each times u: (4, V), of one update.

    Args:
        push: (V, D), and `pull`, as of `push_and_pull`, of all positions of the update.
        scale: (V, D), s = 1 / (√v + ε), by which Adam multiplies both.
        direction: (D,), u, that of the mean feature; its length does not matter.
    """
    return (torch.stack([push, pull, push * scale, pull * scale]) @ direction).double()


def ratio(sums: Tensor) -> float | None:
    r"""How much more Adam favors pushes than pulls along the mean feature, over all rows: the B/A
    of docs/why.md.

    .. math::
        \frac{\sum (\mathrm{push}_k \odot s_k) \cdot u}{\sum \mathrm{push}_k \cdot u} \Big/
        \frac{\sum (\mathrm{pull}_k \odot s_k) \cdot u}{\sum \mathrm{pull}_k \cdot u}

    It is 1 for gradient descent, and None if none of the rows is a target.

    Args:
        sums: (4, rows), of `movements` over updates.
    """
    push, pull, push_step, pull_step = sums.sum(1)
    value = ((push_step / push) / (pull_step / pull)).item()
    return value if math.isfinite(value) else None


def measure(checkpoint: Checkpoint, data: str) -> tuple[Tensor, float, float]:
    """The sums (4, V) of `movements`, β₂ of W, and the mean number of targets of a batch."""
    sections = ("criterion", "optimizer", "dataset", "optimization")
    criterion, optimizer, dataset, optimization = map(checkpoint.options, sections)
    loss, adam = criterion.get("_name"), optimizer.get("_name")
    others = [*filter(criterion.get, OTHER_LOSSES)]
    if loss not in ("mle", "cross_entropy") or adam not in ("adam", "embedding_adam") or others:
        expected = "mle or cross_entropy, and adam or embedding_adam"
        found = ", ".join(map(str, (loss, adam, *others)))
        raise UserError(f"{checkpoint}: found a training with {found}; expected {expected}")
    model, task = build_model(checkpoint, data)
    task.load_dataset("train")
    iterator = task.get_batch_iterator(
        task.dataset("train"), max_tokens=dataset["max_tokens"], max_sentences=dataset["batch_size"],
        max_positions=model.max_positions(), ignore_invalid_inputs=True,
        required_batch_size_multiple=dataset["required_batch_size_multiple"], seed=1,
    )  # fmt: skip
    samples = list(itertools.islice(iterator.next_epoch_itr(), BATCHES))
    layer = layers.output_layer(model)
    parameters = [parameter for parameter in model.train().parameters() if parameter.requires_grad]
    saved = checkpoint.state["last_optimizer_state"]
    group = saved["param_groups"][-1]
    # With a group of its own, W is the last parameter; else it has its place among all.
    place = group["params"][0]
    if len(saved["param_groups"]) == 1:
        (place,) = (index for index, of in enumerate(parameters) if of is layer.weight)
    state = saved["state"][place]
    beta2 = group["betas"][1]
    correction = math.sqrt(1 - beta2 ** int(state["step"] + 1))  # as Adam corrects v

    sums, targets = torch.zeros(4, len(layer.weight), dtype=torch.float64), 0
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(1)  # of dropout: the same for each model
        for sample in samples:
            model.zero_grad()
            with layers.replaced_output_layer(model.decoder, lambda features: features):
                features = model(**sample["net_input"])[0]
            weight, bias = layer.weight, getattr(layer, "bias", None)
            kept = sample["target"] != task.target_dictionary.pad()
            h, y = features[kept], sample["target"][kept]
            loss, _ = chunked(SmoothedLikelihood(), h, weight, y, bias=bias)
            (loss / len(y)).backward()
            targets += len(y)
            torch.nn.utils.clip_grad_norm_(parameters, optimization["clip_norm"] or math.inf)
            v = state["exp_avg_sq"].lerp(weight.grad.square(), 1 - beta2)
            h, weight = h.detach(), weight.detach()
            scale = correction / (v.sqrt() + group["eps"])
            sums += movements(*push_and_pull(h, weight, y, bias), scale, h.mean(0))
    return sums, beta2, targets / len(samples)


def ratios(checkpoint: Checkpoint, data: str) -> dict[str, tuple[float, float, float | None]]:
    """N, x and the ratio of each group, and of each octave by its first number of occurrences."""
    vocabulary = load_vocabulary({"": checkpoint}, data)
    counts, groups = vocabulary.counts.double(), vocabulary.groups("types")
    octaves = counts.log2().floor()  # -inf for tokens that do not occur
    members = {group: groups.members(group) for group in groups.names}
    for octave in octaves.unique().tolist():
        members[f"{2**octave:.0f}"] = (octaves == octave).nonzero()[:, 0]
    sums, beta2, tokens_per_update = measure(checkpoint, data)
    results = {}
    for name, tokens in members.items():
        tokens = tokens[counts[tokens] > 0]
        if len(tokens):
            n = 1 / (counts[tokens] / counts.sum() * tokens_per_update).mean().item()
            results[name] = n, n * (1 - beta2) / 2, ratio(sums[:, tokens])
    return results


def main() -> None:
    """Measures, prints and draws the ratio against x, a point per octave, beside 1/(1 − x)."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkpoints", nargs="+")
    parser.add_argument("--data", required=True)
    parser.add_argument("--name", nargs="+")
    parser.add_argument("--picture")
    options = parser.parse_args()
    agg_fairseq.register()
    figure, (axis,) = style.new_panels(width=7.0, height=4.0)
    xs = [10 ** (power / 20) for power in range(-60, 0)]
    axis.plot(xs, [1 / (1 - x) for x in xs], color="0.25", label="1/(1 − x)")
    for index, name in enumerate(unique_names(options.checkpoints, options.name)):
        results = ratios(Checkpoint(options.checkpoints[index]), options.data)
        points: tuple[list[float], list[float]] = [], []
        for of, (n, x, value) in results.items():
            shown = value if value is None else f"{value:.4g}"
            print(name, of, f"N={n:.4g} x={x:.4g} pushes/pulls={shown}")
            if of.isdecimal() and value is not None and value > 0:
                points[0].append(x)
                points[1].append(value)
        style.line(axis, index, *points, name)
    labels = {"xlabel": "x = N (1 − β₂)/2", "ylabel": "pushes/pulls"}
    style.finish(axis, xscale="log", yscale="log", xlim=(1e-3, None), **labels)
    if options.picture:
        plots.save(style.finish_figure(figure), options.picture, "png")


if __name__ == "__main__":
    main()
