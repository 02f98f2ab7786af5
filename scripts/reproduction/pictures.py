"""The papers' pictures, by `agg-fairseq plot`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agg_fairseq.cli.runs import checkpoints_by_update

from .bench import Bench
from .experiment import Model, Picture
from .measures import corpus_of, evaluation_file, scored_checkpoint, text_metrics_file, token_of

Arguments = Sequence[str | Path]


def projection(*, groups: str = "types") -> Picture:
    """Embeddings in the plane of their first two singular directions, a panel per model."""

    def draw(bench: Bench, models: Sequence[Model]) -> Arguments:
        paths = [scored_checkpoint(bench, model) for model in models]
        names = ["--name", *(model.name for model in models)]
        return ["projection", *paths, *names, "--data", corpus_of(bench, models[0]).binarised, "--groups", groups]

    return Picture("projection", draw)


def early_projection(most: int) -> Picture:
    """The same of the first checkpoints of the first model, by their updates."""

    def draw(bench: Bench, models: Sequence[Model]) -> Arguments:
        updates, paths = zip(*checkpoints_by_update(bench.folder(models[0]))[:most], strict=True)
        names = ["--name", *(f"{update:,} updates" for update in updates)]
        return ["projection", *paths, *names, "--data", corpus_of(bench, models[0]).binarised]

    return Picture("projection", draw)


def singular_values() -> Picture:
    """Singular values of the embeddings, divided by the largest."""

    def draw(bench: Bench, models: Sequence[Model]) -> Arguments:
        paths = [scored_checkpoint(bench, model) for model in models]
        return ["singular-values", *paths, "--name", *(model.name for model in models)]

    return Picture("singular-values", draw)


def over_updates(picture: str, *, groups: str = "types") -> Picture:
    """`isotropy` or `inner-products` of all checkpoints of the runs."""

    def draw(bench: Bench, models: Sequence[Model]) -> Arguments:
        folders = [bench.folder(model) for model in models]
        return [picture, *folders, "--data", corpus_of(bench, models[0]).binarised, "--groups", groups]

    return Picture(picture, draw)


def rare_tokens() -> Picture:
    """The size of the rare group over the updates."""
    return Picture(
        "rare-tokens", lambda bench, models: ["rare-tokens", *(bench.folder(model) / "train.log" for model in models)]
    )


def alpha_sweep() -> Picture:
    """Perplexity, Uniq and isotropy against α."""
    return Picture(
        "alpha-sweep", lambda bench, models: ["alpha-sweep", *(evaluation_file(bench, model) for model in models)]
    )


def similarity(words: Sequence[str], word: int) -> Picture:
    """Cosines of one of the words with all tokens, a panel per model."""

    def draw(bench: Bench, models: Sequence[Model]) -> Arguments:
        paths = [scored_checkpoint(bench, model) for model in models]
        names = ["--name", *(model.name for model in models)]
        asked = ["--words", token_of(bench, models[0], words, word)]
        return ["similarity", *paths, *names, "--data", corpus_of(bench, models[0]).binarised, *asked]

    return Picture("similarity", draw)


def of_text_metrics(picture: str, topk: int) -> Picture:
    """A picture that is drawn of the files of text-metrics."""
    return Picture(
        picture, lambda bench, models: [picture, *(text_metrics_file(bench, model, topk) for model in models)]
    )
