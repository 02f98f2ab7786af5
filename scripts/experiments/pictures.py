"""The papers' pictures of trained models, by `agg_fairseq.plots`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .corpora import prepare
from .experiment import Column, Method, Picture, Workspace
from .measures import checkpoint, neighbors, perplexity_as_published

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def picture(
    name: str, function: str, read: Callable[[Workspace, Method], Any], *, data: bool = False, **options: Any
) -> Picture:
    """A picture by a function of `agg_fairseq.plots`, of what is read of each method, and with `data` of their data."""

    def draw(workspace: Workspace, methods: Sequence[Method]) -> Figure:
        from agg_fairseq import plots

        inputs = {method.model.name: read(workspace, method) for method in methods}
        return getattr(plots, function)(inputs, *([_data(workspace, methods[0])] if data else []), **options)

    return Picture(name, draw)


def _data(workspace: Workspace, method: Method) -> Path:
    return prepare(workspace, method.model.corpus).binarized


def _checkpoint(workspace: Workspace, method: Method) -> Any:
    return checkpoint(workspace, method.model)


def _checkpoints_of_run(workspace: Workspace, method: Method) -> list[Any]:
    from agg_fairseq.checkpoints.fairseq_checkpoint import checkpoints_of_run

    return checkpoints_of_run(workspace.folder(method.model))


def projection(groups: str = "types") -> Picture:
    """Embeddings in the plane of their first two singular directions, a panel per model."""
    return picture("projection", "projection", _checkpoint, data=True, groups=groups)


def early_projection(most: int, groups: str = "types") -> Picture:
    """The same for the first checkpoints of the first model, titled by their updates."""

    def draw(workspace: Workspace, methods: Sequence[Method]) -> Figure:
        from agg_fairseq import plots

        checkpoints = _checkpoints_of_run(workspace, methods[0])[:most]
        by_updates = {f"{checkpoint.updates:,} updates": checkpoint for checkpoint in checkpoints}
        return plots.projection(by_updates, _data(workspace, methods[0]), groups=groups)

    return Picture("projection", draw)


def similarity(word: str) -> Picture:
    """Cosines of a word with all tokens, a panel per model. At tiny, of a rare word of the small corpus."""

    def draw(workspace: Workspace, methods: Sequence[Method]) -> Figure:
        token = word
        if workspace.scale == "tiny":
            first, *_ = neighbors(workspace, methods[0], words=[word]).rows.values()
            token = first["tokens"][0]["token"]
        return picture("", "similarity", _checkpoint, data=True, words=[token]).draw(workspace, methods)

    return Picture("similarity", draw)


def _rare_tokens(workspace: Workspace, methods: Sequence[Method]) -> Figure | None:
    from agg_fairseq import plots

    logs = {method.model.name: workspace.folder(method.model) / "train.log" for method in methods}
    gated = {name: log for name, log in logs.items() if "rare_tokens" in log.read_text(encoding="utf-8")}
    return plots.rare_tokens(gated) if gated else None


def trade_off(points: Sequence[Sequence[Column]], curves: Mapping[str, Sequence[str]]) -> Picture:
    """One perplexity against another. A curve consists of the pieces of several methods, by their labels.

    `points` has the columns of both perplexities at each point, the horizontal one first. The axes are logarithmic.
    """

    def draw(workspace: Workspace, methods: Sequence[Method]) -> Figure:
        from agg_fairseq.plots import style

        figure, ((axis,),) = style.new_figure(width=7.0, height=4.5)
        for index, (title, labels) in enumerate(curves.items()):
            curve = []
            for method in methods:
                if method.label in labels:
                    pairs = [[column.read(workspace, method) for column in point] for point in points]
                    curve += [*pairs, [math.nan, math.nan]]  # a gap
            if curve:
                style.line(axis, index, *zip(*curve, strict=True), title, marked=True)
        first, second = (f"perplexity, {column.label}" for column in points[0])
        style.finish(axis, xscale="log", yscale="log", xlabel=first, ylabel=second)
        return style.finish_figure(figure)

    return Picture("trade-off", draw)


RARE_TOKENS = Picture("rare-tokens", _rare_tokens)
"""Size of the rare group over the updates, of the models that have one."""
SINGULAR_VALUES = picture("singular-values", "singular_values", _checkpoint)
ISOTROPY_OVER_UPDATES = picture("isotropy", "isotropy_over_updates", _checkpoints_of_run, data=True)
INNER_PRODUCTS_OVER_UPDATES = picture(
    "inner-products", "inner_products_over_updates", _checkpoints_of_run, data=True, groups="frequency"
)
ALPHA_SWEEP = picture("alpha-sweep", "alpha_sweep", perplexity_as_published)
FREQUENCIES = picture("frequencies", "frequencies", _data)
