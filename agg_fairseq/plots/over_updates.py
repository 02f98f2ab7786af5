"""Pictures of the course of trainings.

Parameters of these functions: runs: checkpoints of each run, as `checkpoints_of_run` opens them, by
    the names of the runs. data, groups: as in `evaluation`. logs: what `fairseq-train --log-format
    json --log-file FILE` wrote, by the names of the curves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    figure, panels = style.new_panels(len(titles), width=4.0)
    for index, (name, checkpoints) in enumerate(runs.items()):
        updates, curves = [], [[] for _ in titles]
        for checkpoint in tqdm(checkpoints, name, leave=False, disable=None):
            weight = checkpoint.output_embedding.weight
            updates.append(checkpoint.updates)
            rows = {group: weight[tokens] for group, tokens in members.items()}
            values = [metrics.isotropy(rows[group]) for group in members]
            values += [metrics.mean_cross_cosine(rows["frequent"], rows[one]) for one in others]
            for curve, value in zip(curves, values, strict=True):
                curve.append(value)
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
    figure, panels = style.new_panels(len(runs), width=4.0, sharey=True)
    for axis, (name, checkpoints) in zip(panels, runs.items(), strict=True):
        updates, curves = [], {group: [] for group in members}
        for checkpoint in tqdm(checkpoints, name, leave=False, disable=None):
            weight = checkpoint.output_embedding.weight
            updates.append(checkpoint.updates)
            for group, tokens in members.items():
                curves[group].append(metrics.mean_inner_product(weight[tokens]))
        for index, (group, curve) in enumerate(curves.items()):
            style.line(axis, index, updates, curve, group)
        style.finish(axis, title=name, xlabel="updates", ylabel="mean inner product")
    return style.finish_figure(figure)


def _members(runs: Runs, data: str | Path, groups: str) -> dict[str, Tensor]:
    """The tokens (n,) of each group, for runs of one vocabulary."""
    models = {}
    for checkpoints in runs.values():
        for checkpoint in checkpoints:
            models[str(checkpoint)] = checkpoint
    by_frequency = load_vocabulary(models, data).groups(groups)
    return {group: by_frequency.members(group) for group in by_frequency.names}


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
    panels = {"train_inner": axis}
    _draw(panels, logs, "rare_tokens", "the log of a run with --criterion agg")
    style.finish(axis, xlabel="updates", ylabel="rare tokens", ylim=(0, None))
    return style.finish_figure(figure)


def learning_curves(logs: Logs) -> style.Figure:
    """Draws the perplexity of the training batches and of the split `valid` over the updates."""
    figure, panels = style.new_panels(2, width=4.4)
    _draw(
        dict(zip(("train_inner", "valid"), panels, strict=True)),
        logs,
        "ppl",
        "a log of fairseq-train",
    )
    for axis, title in zip(panels, ("training", "valid"), strict=True):
        style.finish(axis, title=title, xlabel="updates", ylabel="perplexity", yscale="log")
    return style.finish_figure(figure)
