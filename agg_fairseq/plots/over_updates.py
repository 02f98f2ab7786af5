"""Pictures of the course of trainings.

Parameters of these functions: runs: checkpoints of each run, as `checkpoints_of_run` opens them, by
    the names of the runs. data, groups: as in `evaluation`. logs: what `fairseq-train --log-format
    json --log-file FILE` wrote, by the names of the curves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from torch import Tensor
from tqdm import tqdm

from .. import metrics
from ..checkpoints import Checkpoint
from ..data.fairseq_logs import read_log
from ..errors import UserError
from ..evaluation.inputs import load_vocabulary
from . import style

Runs = Mapping[str, Sequence[Checkpoint]]
Logs = Mapping[str, str | Path]


def isotropy_over_updates(runs: Runs, data: str | Path, *, groups: str = "types") -> style.Figure:
    """Draws the isotropy of frequent and of rare embeddings, and the mean cosine between the two,
    over the updates; and of unseen ones, if there are any.

    Reference: Yu et al. (2022), Fig. 2.
    """
    members = _members(runs, data, groups)
    members.pop("medium")
    others = [group for group in members if group != "frequent"]
    titles = [f"I(W) {group}" for group in members]
    titles += [f"cosine, {group} and frequent" for group in others]

    def measure(weight: Tensor) -> list[float]:
        rows = {group: weight[tokens] for group, tokens in members.items()}
        values = list(map(metrics.isotropy, rows.values()))
        return values + [metrics.mean_cross_cosine(rows["frequent"], rows[one]) for one in others]

    figure, panels = style.new_panels(len(titles), width=4.0)
    for index, (name, run) in enumerate(runs.items()):
        updates, curves = _course(name, run, measure)
        for axis, curve in zip(panels, curves, strict=True):
            style.line(axis, index, updates, curve, name)
    for axis, title in zip(panels, titles, strict=True):
        style.finish(axis, title=title, xlabel="updates")
    return style.finish_figure(figure)


def inner_products_over_updates(
    runs: Runs, data: str | Path, *, groups: str = "types"
) -> style.Figure:
    """Draws the mean inner product between two embeddings of the same frequency group over the
    updates.

    Reference: Yu et al. (2021), Fig. 2.
    """
    members = _members(runs, data, groups)

    def measure(weight: Tensor) -> list[float]:
        return [metrics.mean_inner_product(weight[tokens]) for tokens in members.values()]

    figure, panels = style.new_panels(len(runs), width=4.0, sharey=True)
    for axis, (name, run) in zip(panels, runs.items(), strict=True):
        updates, curves = _course(name, run, measure)
        for index, (group, curve) in enumerate(zip(members, curves, strict=True)):
            style.line(axis, index, updates, curve, group)
        style.finish(axis, title=name, xlabel="updates", ylabel="mean inner product")
    return style.finish_figure(figure)


def _members(runs: Runs, data: str | Path, groups: str) -> dict[str, Tensor]:
    """The tokens (n,) of each group, for runs of one vocabulary."""
    models = {}
    for checkpoints in runs.values():
        for checkpoint in checkpoints:
            models[str(checkpoint)] = checkpoint
    return load_vocabulary(models, data).groups(groups).all_members()


def _course(
    name: str, run: Sequence[Checkpoint], measure: Callable[[Tensor], list[float]]
) -> tuple[list[int], list[tuple[float, ...]]]:
    """The updates of the checkpoints of a run, and at these a curve for each value of W (V, D)."""
    updates, values = [], []
    for checkpoint in tqdm(run, name, leave=False, disable=None):
        updates.append(checkpoint.updates)
        values.append(measure(checkpoint.output_embedding.weight))
    return updates, list(zip(*values, strict=True))


def _draw(panels: Mapping[str, style.Axes], logs: Logs, value: str, expected: str) -> None:
    """Draws a logged value over the updates, in a panel for each tag, with a curve for each log, of
    at most `MAX_POINTS`, evenly chosen up to the last."""
    for index, (name, log) in enumerate(logs.items()):
        found = read_log(log, *panels, values=[value])
        for (tag, axis), entries in zip(panels.items(), found, strict=True):
            points = {one["num_updates"]: one[value] for one in entries if value in one}
            if not points:
                raise UserError(
                    f"{log}: found no {value} in its {tag!r} lines; expected {expected}"
                )
            step = -(-len(points) // style.MAX_POINTS)
            updates, drawn = list(points)[::-step][::-1], list(points.values())[::-step][::-1]
            style.line(axis, index, updates, drawn, name)


def rare_tokens(logs: Logs) -> style.Figure:
    """Draws the number of tokens in the rare group of adaptive gradient gating over the updates.

    Reference: Yu et al. (2022), Fig. 4.
    """
    figure, (axis,) = style.new_panels()
    _draw({"train_inner": axis}, logs, "rare_tokens", "the log of a run with --criterion agg")
    style.finish(axis, xlabel="updates", ylabel="rare tokens", ylim=(0, None))
    return style.finish_figure(figure)


def learning_curves(logs: Logs) -> style.Figure:
    """Draws the perplexity of the training batches and of the split `valid` over the updates."""
    figure, (training, valid) = style.new_panels(2, width=4.4)
    _draw({"train_inner": training, "valid": valid}, logs, "ppl", "a log of fairseq-train")
    for axis, title in ((training, "training"), (valid, "valid")):
        style.finish(axis, title=title, xlabel="updates", ylabel="perplexity", yscale="log")
    return style.finish_figure(figure)
