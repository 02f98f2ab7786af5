"""What other optimizers than Adam do to rare tokens: trains small language models, the output
embedding W by one optimizer and all else by another (docs/why.md).

    python -m scripts.ours.optimizers TEXT W REST SEED RATE,… FOLDER/eval.json [UNITS]
    python -m scripts.ours.optimizers RUNS PICTURE.png

TEXT is a name of rule.py, and the model is the one there; W is a name of `OPTIMIZERS`. REST is
adamw, with β₂ = 0.98; muon for the matrices of the layers; or the kinds of parameters that have
β₂ = 0.999 of AdamW, such as attention+feed-forward+vectors. Each peak learning rate of W makes a
training, kept in FOLDER/RATE.json; eval.json is the one with the lowest perplexity on the
validation part. In models of other UNITS than 64, the learning rate of the rest is 0.64 / UNITS.
The picture has PPL within rare against pushes/pulls, of each RUNS/ROW/eval.json.
"""

import copy
import itertools
import logging
import math
import pydoc
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Muon, Optimizer
from torch.optim.lr_scheduler import LambdaLR

from agg_fairseq import plots
from agg_fairseq.columns import CALIBRATED, COMPARED
from agg_fairseq.files import write_json
from agg_fairseq.metrics import NextTokenStatistics, frequency_groups, isoscore
from agg_fairseq.plots import style
from agg_fairseq.result import Result

from .pushes_and_pulls import BATCHES, movements, push_and_pull, ratio
from .rule import BLOCK, UNITS, WARMUP, Blocks, Model, read_text, shuffled_batches

TOKENS_PER_UPDATE, RATE = 256, 0.01
OPTIMIZERS: dict[str, tuple[str, dict[str, Any]]] = {
    **{f"adamw-{b}": ("torch.optim.AdamW", {"betas": (0.9, b)}) for b in (0.95, 0.98, 0.999)},
    "adamw-no-momentum": ("torch.optim.AdamW", {"betas": (0.0, 0.98)}),
    "amsgrad": ("torch.optim.AdamW", {"betas": (0.9, 0.98), "amsgrad": True}),
    "adafactor": ("torch.optim.Adafactor", {}),
    "sgd": ("torch.optim.SGD", {"momentum": 0.9}),
    "muon": ("torch.optim.Muon", {}),
    "lion": ("pytorch_optimizer.Lion", {"betas": (0.9, 0.99)}),
    "signsgd": ("pytorch_optimizer.SignSGD", {"momentum": 0.0}),
    "schedule-free": ("pytorch_optimizer.ScheduleFreeAdamW", {"betas": (0.9, 0.999)}),
}
"""Optimizers of W: their classes and options, without weight decay."""
COLUMNS = COMPARED | CALIBRATED
COLUMNS |= {"perplexity": ("rare", "total"), "pushes_over_pulls": ("rare",)}
KINDS = ("attention", "feed-forward", "vectors")
FIRST_MOMENTS = ("exp_avg", "momentum_buffer")


def parameter_kind(name: str, parameter: Tensor) -> str:
    """The kind of a parameter of the layers: vectors are biases and the weights of norms."""
    if parameter.dim() == 1:
        return KINDS[2]
    return KINDS[0] if "attn" in name else KINDS[1]


def build_optimizers(model: Model, name: str, rest: str, rate: float) -> list[Optimizer]:
    """The optimizer of W, and those of all else."""
    path, options = OPTIMIZERS[name]
    optimizers = [pydoc.locate(path)([model.weight], lr=rate, weight_decay=0.0, **options)]
    if unknown := {*rest.split("+")} - {"adamw", "muon", *KINDS}:
        expected = f"adamw, muon, or some of {', '.join(KINDS)}"
        raise SystemExit(f"REST: found {', '.join(unknown)}; expected {expected}")
    rest_rate, chosen, others = RATE * UNITS / model.weight.size(1), [], []
    for key, parameter in model.named_parameters():
        if key == "weight":
            continue
        kind = parameter_kind(key, parameter)
        is_muon = rest == "muon" and kind != "vectors"
        (chosen if is_muon or kind in rest.split("+") else others).append(parameter)
    if rest == "muon":
        optimizers.append(Muon(chosen, rest_rate, adjust_lr_fn="match_rms_adamw"))
    elif chosen:
        optimizers.append(AdamW(chosen, rest_rate, (0.9, 0.999), fused=True))
    if others:
        optimizers.append(AdamW(others, rest_rate, (0.9, 0.98), fused=True))
    return optimizers


def backward(model: Model, inputs: Tensor, targets: Tensor) -> Tensor:
    """Computes the gradients of the mean loss, clipped as in training; returns features (N, D)."""
    model.zero_grad()
    features = model(inputs).flatten(0, 1)
    nn.functional.cross_entropy(features @ model.weight.T, targets.flatten()).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    return features.detach()


def pushes_over_pulls(
    model: Model, optimizer: Optimizer, batches: list[tuple[Tensor, Tensor]], rows: Tensor
) -> float | None:
    """The ratio of pushes_and_pulls.py, of some rows of W: None for an optimizer whose step is not
    a gradient times a scale for each entry.

    The scale is the step without momentum from W = 0, divided by the gradient.
    """
    if type(optimizer).__name__ in ("Lion", "Muon", "ScheduleFreeAdamW"):
        return None
    weight, sums = model.weight.detach().clone(), torch.zeros(4, len(model.weight)).double()
    saved = copy.deepcopy(optimizer.state_dict())
    for inputs, targets in batches:
        features = backward(model, inputs, targets)
        optimizer.load_state_dict(copy.deepcopy(saved))
        for name, moment in optimizer.state[model.weight].items():
            if name in FIRST_MOMENTS:
                moment.zero_()
        with torch.no_grad():
            model.weight.zero_()
            optimizer.step()
            scale = (-model.weight / model.weight.grad).nan_to_num()
            model.weight.copy_(weight)
        parts = push_and_pull(features, weight, targets.flatten())
        sums += movements(*parts, scale, features.mean(0))
    return ratio(sums[:, rows])


@torch.no_grad()
def statistics(model: Model, data: Blocks, groups: Any) -> NextTokenStatistics:
    """Of blocks of inputs and targets."""
    measured = NextTokenStatistics(groups, keep_positions=True)
    for inputs, targets in zip(*(part.split(4) for part in data), strict=True):
        logits = model(inputs).flatten(0, 1) @ model.weight.T
        measured.update(logits.log_softmax(1), targets.flatten())
    return measured


def train(
    text: str, name: str, rest: str, seed: int, rate: float, units: int = UNITS
) -> dict[str, Any]:
    """Trains and measures a model, which is its last checkpoint: the row of a `Result`, with the
    validation perplexity as `valid`."""
    counts, (inputs, targets), *others = read_text(text)
    torch.manual_seed(seed)
    model = Model(len(counts), 0.0, units)
    per_update = TOKENS_PER_UPDATE // BLOCK
    updates = math.ceil(len(inputs) / per_update)

    def falling(update: int) -> float:
        """A warm-up, then down to a tenth."""
        done = (update + 1 - WARMUP) / max(updates - WARMUP, 1)
        return (update + 1) / WARMUP if update < WARMUP else 1 - 0.9 * done

    optimizers, schedules = build_optimizers(model, name, rest, rate), []
    for optimizer in optimizers:
        constant = hasattr(optimizer, "train")  # schedule-free
        rule = (lambda update: min(1.0, (update + 1) / WARMUP)) if constant else falling
        schedules.append(LambdaLR(optimizer, rule))
    order = shuffled_batches(len(inputs), per_update, seed)
    for batch in itertools.islice(order, updates):
        backward(model, inputs[batch], targets[batch])
        for optimizer, schedule in zip(optimizers, schedules, strict=True):
            optimizer.step()
            schedule.step()
    if hasattr(optimizers[0], "eval"):
        optimizers[0].eval()

    groups = frequency_groups(counts)
    model.eval()
    valid, test = (statistics(model, part, groups) for part in others)
    calibrated = test.calibrated(valid.fit_offsets())
    model.train()
    batches = [(inputs[batch], targets[batch]) for batch in itertools.islice(order, BATCHES)]
    measured_ratio = pushes_over_pulls(model, optimizers[0], batches, groups.members("rare"))
    return {
        **test.compute(),
        **{f"calibrated_{metric}": values for metric, values in calibrated.items()},
        "isoscore": {"total": isoscore(model.weight.detach())},
        "pushes_over_pulls": {"rare": measured_ratio},
        "valid": valid.compute()["perplexity"]["total"],
    }


def main(
    text: str, name: str, rest: str, seed: str, rates: str, output: str, units: str = str(UNITS)
) -> None:
    """See the help at the top."""
    path, by_rate = Path(output), {}
    settings = {"text": text, "W": name, "rest": rest, "seed": int(seed), "units": int(units)}
    for rate in rates.split(","):
        file = path.with_name(f"{rate}.json")
        if not file.exists():
            row = train(text, name, rest, int(seed), float(rate), int(units))
            write_json(file, Result({path.parent.name: row}, COLUMNS, settings).json())
        result = Result.read(file)
        by_rate[rate] = result[path.parent.name]["valid"]
        print(f"{name}, {rest}, {rate}: valid PPL {by_rate[rate]:.2f}", flush=True)
    best = min(by_rate, key=by_rate.__getitem__)
    result = Result.read(path.with_name(f"{best}.json"))
    facts = {"rate": float(best), "valid perplexity by rate": by_rate}
    write_json(path, Result(result.rows, COLUMNS, settings, facts).json())


def draw(runs: str, picture: str) -> None:
    """A point for each row whose pushes and pulls have a positive ratio."""
    logging.disable(logging.INFO)  # importing fairseq turns on the debug messages of every library
    figure, (axis,) = style.new_panels(width=7.0, height=4.0)
    for index, path in enumerate(sorted(Path(runs).glob("*/eval.json"))):
        row = Result.read(path)[path.parent.name]
        x, y = row["pushes_over_pulls"]["rare"], row["within_perplexity"]["rare"]
        if x is not None and x > 0:
            style.line(axis, index, [x], [y], path.parent.name)
    labels = {"xlabel": "pushes/pulls of the rare group", "ylabel": "PPL within rare"}
    style.finish(axis, xscale="log", yscale="log", **labels)
    plots.save(style.finish_figure(figure), picture, "png")


if __name__ == "__main__":
    (draw if len(sys.argv) == 3 else main)(*sys.argv[1:])
