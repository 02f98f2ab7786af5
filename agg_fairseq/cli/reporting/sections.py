"""The sections of a report. Each returns HTML, or raises `NotShown` with the reason why there is nothing to show."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from .. import eval_lm, isotropy, neighbors, word_similarity
from ..measured import Measured
from ..runs import checkpoints_by_update
from ..training_log import read_entries
from . import page
from .context import Context, NotShown
from .runs import LOG, summary
from .settings import different_settings

FEWEST_CHECKPOINTS = 3
"""From which on changes in the course of a training are shown."""


def overview(context: Context) -> str:
    """What each run is, and the settings that differ."""
    header, rows = summary(context.runs)
    different = different_settings([run.state for run in context.runs])
    body = page.table(header, rows)
    if len(context.runs) == 1:
        return body
    if not different:
        return body + page.paragraph("All settings are the same.")
    said = page.paragraph("Options of fairseq-train that are not the same in all runs:")
    return body + said + page.table(header, [[name, *values] for name, values in different])


def learning_curves(context: Context) -> str:
    """Perplexity over the updates."""
    subset = context.arguments.valid_subset
    logged = [run for run in context.runs if run.log is not None and _has_curves(run.log, subset)]
    if not logged:
        raise NotShown(
            f"no run has a {LOG} with training and {subset!r} lines; train with --log-format json --log-file "
            f"SAVE_DIR/{LOG}"
        )
    inputs, names = [str(run.log) for run in logged], [run.name for run in logged]
    figure = context.picture("learning-curves", inputs=inputs, name=names, valid_split=subset)
    caption = "Perplexity over the updates, of the training batches and of the validation split."
    missing = [run.name for run in context.runs if run not in logged]
    return page.picture(figure, caption + (f" Not logged: {', '.join(missing)}." if missing else ""))


def _has_curves(log: Path, subset: str) -> bool:
    entries = read_entries(log)
    return all(any("ppl" in entry for entry in entries.get(tag, ())) for tag in ("train_inner", subset))


def language_model(context: Context) -> str:
    """Perplexity and distinct predictions by frequency group; isotropy has a section of its own."""
    if not context.is_language_model:
        raise NotShown("these are no language models")
    values = context.given("gen_subset", "tokens_per_sample", "groups", "device")
    paths = {"data": context.arguments.data, "path": context.checkpoints, "name": context.names}
    return page.measured_table(_without_isotropy(context.measured("eval-lm", eval_lm, **paths, **values)))


def _without_isotropy(measured: Measured) -> Measured:
    kept = [column for column, title in enumerate(measured.header) if not title.startswith(("I(W)", "S(W)"))]
    header, *rows = ([line[column] for column in kept] for line in (measured.header, *measured.rows))
    return replace(measured, header=header, rows=rows)


def embeddings(context: Context) -> str:
    """Isotropy, with the pictures of the embedding space."""
    values = {"inputs": context.checkpoints, "name": context.names}
    grouped = {**values, "data": context.arguments.data, **context.given("groups")}
    body = page.measured_table(context.measured("isotropy", isotropy, **grouped))
    caption = "Token embeddings in the plane of their first two singular directions, at most 2,000 of each group."
    body += page.picture(context.picture("projection", **grouped), caption)
    caption = "Singular values of the embeddings: the slower they fall, the more isotropic."
    return body + page.picture(context.picture("singular-values", **values), caption)


def over_updates(context: Context) -> str:
    """How the embeddings changed in training, where there are the checkpoints to tell."""
    followed = [run for run in context.runs if len(checkpoints_by_update(run.folder)) >= FEWEST_CHECKPOINTS]
    if not followed:
        raise NotShown(f"no run has {FEWEST_CHECKPOINTS} checkpoints or more; train with --save-interval-updates")
    values = {
        "inputs": [str(run.folder) for run in followed],
        "name": [run.name for run in followed],
        "data": context.arguments.data,
        **context.given("groups"),
    }
    captions = {
        "isotropy": "Isotropy of frequent and of rare embeddings, and the mean cosine between them.",
        "inner-products": "Mean inner product between embeddings of the same frequency group.",
    }
    return "".join(page.picture(context.picture(name, **values), caption) for name, caption in captions.items())


def rare_group(context: Context) -> str:
    """How many tokens adaptive gradient gating took for rare."""
    gated = [run for run in context.runs if run.log is not None and _has_rare_tokens(run.log)]
    if not gated:
        raise NotShown(f"no run has a {LOG} with rare_tokens, which --criterion agg logs")
    figure = context.picture("rare-tokens", inputs=[str(run.log) for run in gated], name=[run.name for run in gated])
    return page.picture(figure, "Size of the rare group that adaptive gradient gating chose.")


def _has_rare_tokens(log: Path) -> bool:
    return any("rare_tokens" in entry for entry in read_entries(log).get("train_inner", ()))


def nearest(context: Context) -> str:
    """Nearest neighbours of some words, and their similarity to all others."""
    values = {"inputs": context.checkpoints, "name": context.names, "data": context.arguments.data}
    values |= context.given("groups")
    try:
        measured = context.measured("neighbors", neighbors, **values, **context.given("words"), **context.tokeniser())
    except neighbors.NoWord as error:
        raise NotShown(str(error)) from error
    body = page.measured_table(measured, turned=False)
    tokens = [word["tokens"][0]["token"] for word in measured.values["words"] if len(word["tokens"]) == 1]
    if tokens:
        figure = context.picture("similarity", **values, words=tokens)
        body += page.picture(figure, "Cosine of the words above with every token, by its frequency rank.")
    return body


def similarity(context: Context) -> str:
    """Agreement with people on which words are alike."""
    asked = context.arguments.datasets
    if asked is None:
        raise NotShown("no --datasets were given")
    values = {"inputs": context.checkpoints, "name": context.names, "data": context.arguments.data, "datasets": asked}
    files = word_similarity.files_of(asked)
    measured = context.measured("word-similarity", word_similarity, files, **values, **context.tokeniser())
    return page.measured_table(measured)


def frequencies(context: Context) -> str:
    """How often each token occurs."""
    figure = context.picture("frequencies", inputs=[context.arguments.data])
    return page.picture(figure, "Occurrences of each token in the training split, by rank.")
