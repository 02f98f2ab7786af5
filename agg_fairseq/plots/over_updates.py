"""Pictures of the course of trainings.

Parameters of these functions:
    runs: checkpoints of each run, as `checkpoints_of_run` opens them, by the names of the runs.
    data: folder written by `fairseq-preprocess`, with the training split, from which the frequencies are counted.
    groups: frequent, medium and rare tokens by one of `data.vocabulary.GROUPINGS`.
    logs: what `fairseq-train --log-format json --log-file FILE` wrote, by the names of the curves.
    order: names of all runs of a page, so that each has the same color in all pictures.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from torch import Tensor
from tqdm import tqdm

from .. import metrics
from ..checkpoints.fairseq_checkpoint import Checkpoint
from ..errors import UserError
from ..evaluation.fairseq_logs import read_log
from ..evaluation.inputs import load_vocabulary
from ..metrics.groups import GROUPS
from . import style

Runs = Mapping[str, Sequence[Checkpoint]]


def isotropy_over_updates(
    runs: Runs, data: str | Path, *, groups: str = "types", order: Sequence[str] = ()
) -> style.Figure:
    """Draws the isotropy of frequent and of rare embeddings, and the mean cosine between the two, over the updates.

    A panel for each of the three, with a curve for each run. There is a gap where a group is empty.

    Reference: Yu et al. (2022), Fig. 2.
    """
    titles = ("I(W) frequent", "I(W) rare", "cosine of rare and frequent")

    def measured(embeddings: Mapping[str, Tensor]) -> list[float]:
        both = [embeddings["frequent"], embeddings["rare"]]
        return [
            *(metrics.isotropy(weight) if len(weight) else math.nan for weight in both),
            metrics.mean_cosine_between(*both),
        ]

    figure, axes = style.new_figure(columns=len(titles), width=4.0, sharex=True)
    order = list(order or runs)
    for name, updates, curves in _over_updates(runs, data, groups, measured):
        for axis, curve in zip(axes[0], curves, strict=True):
            style.line(axis, order.index(name), updates, curve, name, marked=True)
    for axis, title in zip(axes[0], titles, strict=True):
        style.finish(axis, title=title, xlabel="updates")
    return style.finish_figure(figure)


def inner_products_over_updates(runs: Runs, data: str | Path, *, groups: str = "types") -> style.Figure:
    """Draws the mean inner product between two embeddings of the same frequency group over the updates.

    A panel for each run, all on the same scale, with a curve for each group of two tokens or more.

    Reference: Yu et al. (2021), Fig. 2.
    """
    figure, panels = style.new_panels(len(runs), width=4.0, xlabel="updates", ylabel="mean inner product", sharey=True)
    measured = _over_updates(runs, data, groups, lambda of: [metrics.mean_inner_product(of[group]) for group in GROUPS])
    for axis, (name, updates, curves) in zip(panels, measured, strict=True):
        for index, (group, curve) in enumerate(zip(GROUPS, curves, strict=True)):
            style.line(axis, index, updates, curve, group, marked=True, colors=style.RAMP)
        style.finish(axis, title=name)
    return style.finish_figure(figure)


def _over_updates(
    runs: Runs, data: str | Path, groups: str, measure: Callable[[Mapping[str, Tensor]], Sequence[float]]
) -> Iterator[tuple[str, list[int], list[tuple[float, ...]]]]:
    """The name of each run, its updates, and a curve for each measure of the embeddings (tokens, D) by group."""
    vocabulary = load_vocabulary({name: checkpoints[0] for name, checkpoints in runs.items()}, data)
    members = {group: vocabulary.groups(groups).members(group) for group in GROUPS}
    for name, checkpoints in runs.items():
        values = []
        for checkpoint in tqdm(checkpoints, desc=name, unit="checkpoint", disable=None, leave=False):
            checkpoint.check_vocabulary(len(vocabulary.tokens), data)
            weight = checkpoint.output_embedding.weight
            values.append(measure({group: weight[tokens] for group, tokens in members.items()}))
        yield name, [checkpoint.updates for checkpoint in checkpoints], list(zip(*values, strict=True))


def rare_tokens(logs: Mapping[str, str | Path], *, order: Sequence[str] = ()) -> style.Figure:
    """Draws the number of tokens in the rare group of adaptive gradient gating over the updates.

    A curve for each log.

    Reference: Yu et al. (2022), Fig. 4.
    """
    figure, ((axis,),) = style.new_figure()
    order = list(order or logs)
    for name, log in logs.items():
        entries = [entry for entry in read_log(log) if "rare_tokens" in entry]
        if not entries:
            raise UserError(f"{log}: found no rare_tokens in it; expected the log of a run with --criterion agg")
        updates, sizes = ([entry[key] for entry in entries] for key in ("num_updates", "rare_tokens"))
        style.line(axis, order.index(name), updates, sizes, name)
    style.finish(axis, xlabel="updates", ylabel="rare tokens", ylim=(0, None))
    return style.finish_figure(figure)


def learning_curves(logs: Mapping[str, str | Path], *, order: Sequence[str] = ()) -> style.Figure:
    """Draws the perplexity of the training batches and of the split `valid` over the updates.

    A panel for each of the two, with a curve for each log. If there are several, a third panel has the difference to
    the first in the validation perplexity, at the updates at which both were validated.
    """
    panels: dict[str, dict[str, dict[float, float]]] = {}  # by title and name: what is drawn by update
    for title, tag in (("training", "train_inner"), ("valid", "valid")):  # and what marks the lines of the log
        panels[title] = {}
        for name, log in logs.items():
            perplexities = {entry["num_updates"]: entry["ppl"] for entry in read_log(log, tag) if "ppl" in entry}
            if not perplexities:
                raise UserError(f"{log}: found no ppl in its {tag!r} lines; expected a log of fairseq-train")
            panels[title][name] = perplexities
    (first, base), *others = panels["valid"].items()
    differences = {}
    for name, ppl in others:  # a log may have a perplexity of 0, which nothing can be compared with
        differences[name] = {update: 100 * (ppl[update] / base[update] - 1) for update in ppl if base.get(update)}
    if any(differences.values()):
        panels[f"valid, against {first}"] = differences
    order = list(order or logs)
    figure, axes = style.new_figure(columns=len(panels), width=4.4)
    for axis, (title, of_panel) in zip(axes[0], panels.items(), strict=True):
        for name, points in of_panel.items():
            style.line(axis, order.index(name), list(points), list(points.values()), name, marked=title != "training")
        look = {"ylabel": "perplexity", "yscale": "log"}
        if of_panel is differences:
            axis.axhline(0, color=style.REFERENCE, linewidth=0.8)
            look = {"ylabel": "difference in perplexity (%)"}
        style.finish(axis, title=title, xlabel="updates", **look)
    return style.finish_figure(figure)
