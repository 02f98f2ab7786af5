"""The papers' pictures of trained models, by `agg_fairseq.plots`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from .corpora import prepare
from .experiment import Model, Picture, Workspace
from .measures import checkpoint, perplexity_as_published, texts, token_of

if TYPE_CHECKING:  # imported where they are used: --list and --dry-run work without torch
    from matplotlib.figure import Figure

    from agg_fairseq.checkpoints.fairseq_checkpoint import Checkpoint


def _checkpoints(workspace: Workspace, models: Sequence[Model]) -> dict[str, Checkpoint]:
    return {model.name: checkpoint(workspace, model) for model in models}


def projection(*, groups: str = "types") -> Picture:
    """Embeddings in the plane of their first two singular directions, a panel per model."""

    def draw(workspace: Workspace, models: Sequence[Model]) -> Figure:
        from agg_fairseq import plots

        data = prepare(workspace, models[0].corpus).binarized
        return plots.projection(_checkpoints(workspace, models), data, groups=groups)

    return Picture("projection", draw)


def early_projection(most: int, *, groups: str = "types") -> Picture:
    """The same for the first checkpoints of the first model, titled by their updates."""

    def draw(workspace: Workspace, models: Sequence[Model]) -> Figure:
        from agg_fairseq import plots
        from agg_fairseq.checkpoints.fairseq_checkpoint import checkpoints_of_run

        found = checkpoints_of_run(workspace.folder(models[0]))[:most]
        by_updates = {f"{one.updates:,} updates": one for one in found}
        return plots.projection(by_updates, prepare(workspace, models[0].corpus).binarized, groups=groups)

    return Picture("projection", draw)


def singular_values() -> Picture:
    """Singular values of the embeddings, divided by the largest."""

    def draw(workspace: Workspace, models: Sequence[Model]) -> Figure:
        from agg_fairseq import plots

        return plots.singular_values(_checkpoints(workspace, models))

    return Picture("singular-values", draw)


def over_updates(name: str, *, groups: str = "types") -> Picture:
    """`isotropy` or `inner-products` of all checkpoints of the models."""

    def draw(workspace: Workspace, models: Sequence[Model]) -> Figure:
        from agg_fairseq import plots
        from agg_fairseq.checkpoints.fairseq_checkpoint import checkpoints_of_run

        function = {"isotropy": plots.isotropy_over_updates, "inner-products": plots.inner_products_over_updates}[name]
        runs = {model.name: checkpoints_of_run(workspace.folder(model)) for model in models}
        return function(runs, prepare(workspace, models[0].corpus).binarized, groups=groups)

    return Picture(name, draw)


def rare_tokens() -> Picture:
    """Size of the rare group over the updates, of the models that have one."""

    def draw(workspace: Workspace, models: Sequence[Model]) -> Figure | None:
        from agg_fairseq import plots

        logs = {model.name: workspace.folder(model) / "train.log" for model in models}
        gated = {name: log for name, log in logs.items() if "rare_tokens" in log.read_text(encoding="utf-8")}
        return plots.rare_tokens(gated) if gated else None

    return Picture("rare-tokens", draw)


def alpha_sweep() -> Picture:
    """Perplexity, Uniq and isotropy against α."""

    def draw(workspace: Workspace, models: Sequence[Model]) -> Figure:
        from agg_fairseq import plots

        return plots.alpha_sweep({model.name: perplexity_as_published(workspace, model) for model in models})

    return Picture("alpha-sweep", draw)


def similarity(words: Sequence[str], word: int) -> Picture:
    """Cosines of one of the words with all tokens, a panel per model."""

    def draw(workspace: Workspace, models: Sequence[Model]) -> Figure:
        from agg_fairseq import plots

        data, token = prepare(workspace, models[0].corpus).binarized, token_of(workspace, models[0], words, word)
        return plots.similarity(_checkpoints(workspace, models), data, words=[token])

    return Picture("similarity", draw)


def frequencies() -> Picture:
    """The occurrences of each token by its rank, of the corpora of the models."""

    def draw(workspace: Workspace, models: Sequence[Model]) -> Figure:
        from agg_fairseq import plots

        return plots.frequencies({model.name: prepare(workspace, model.corpus).binarized for model in models})

    return Picture("frequencies", draw)


def of_texts(name: str, topk: int) -> Picture:
    """`token-shares` or `class-sweep`, of the measures of texts that are drawn from the `topk` most probable tokens."""

    def draw(workspace: Workspace, models: Sequence[Model]) -> Figure:
        from agg_fairseq import plots

        function = {"token-shares": plots.token_shares, "class-sweep": plots.class_sweep}[name]
        return function({model.name: partial(texts, topk=topk)(workspace, model) for model in models})

    return Picture(name, draw)
