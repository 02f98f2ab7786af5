"""The sections of a report. Each returns HTML, or raises `NotShown` with the reason why there is nothing to show."""

from __future__ import annotations

from pathlib import Path

from ...errors import UserError
from .. import eval_lm, isotropy, neighbors, word_similarity
from ..measured import Measured
from ..runs import checkpoints_by_update
from ..training_log import read_entries
from . import page
from .context import Context, NotShown
from .runs import LOG, summary
from .settings import different_settings

TOKENISER = ("bpe", "gpt2_encoder_json", "gpt2_vocab_bpe", "sentencepiece_model", "bpe_codes")


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
    words = [*(run.log for run in logged), "--name", *(run.name for run in logged)]
    figure = context.picture("learning-curves", *words, *context.options("valid_subset"))
    caption = "Perplexity over the updates, of the training batches and of the validation split."
    missing = [run.name for run in context.runs if run not in logged]
    return page.picture(figure, caption + (f" Not logged: {', '.join(missing)}." if missing else ""))


def _has_curves(log: Path, subset: str) -> bool:
    entries = read_entries(log)
    return all(any("ppl" in entry for entry in entries.get(tag, ())) for tag in ("train_inner", subset))


def language_model(context: Context) -> str:
    """Perplexity and distinct predictions by frequency group."""
    if not context.is_language_model:
        raise NotShown("these are no language models")
    words = [context.arguments.data, "--path", *context.checkpoints, "--name", *context.names]
    words += context.options("gen_subset", "device")
    return page.measured_table(context.measured("eval-lm", eval_lm, words, context.checkpoints))


def embeddings(context: Context) -> str:
    """Isotropy, with the pictures of the embedding space."""
    words = [*context.checkpoints, "--name", *context.names, *context.data, *context.options("groups")]
    body = page.measured_table(context.measured("isotropy", isotropy, words, context.checkpoints))
    projection = context.picture("projection", *words)
    body += page.picture(projection, "All token embeddings in the plane of their first two singular directions.")
    values = context.picture("singular-values", *context.checkpoints, "--name", *context.names)
    return body + page.picture(values, "Singular values of the embeddings: the slower they fall, the more isotropic.")


def over_updates(context: Context) -> str:
    """How the embeddings changed in training, where there are the checkpoints to tell."""
    followed = [run for run in context.runs if len(checkpoints_by_update(run.folder)) > 2]
    body = ""
    if followed:
        words = [*(run.folder for run in followed), "--name", *(run.name for run in followed), *context.data]
        words += context.options("groups")
        figure = context.picture("isotropy", *words)
        body += page.picture(figure, "Isotropy of frequent and of rare embeddings, and the mean cosine between them.")
        figure = context.picture("inner-products", *words)
        body += page.picture(figure, "Mean inner product between embeddings of the same frequency group.")
    gated = [run for run in context.runs if run.log is not None and b'"rare_tokens"' in run.log.read_bytes()]
    if gated:
        figure = context.picture("rare-tokens", *(run.log for run in gated), "--name", *(run.name for run in gated))
        body += page.picture(figure, "Size of the rare group that adaptive gradient gating chose.")
    if not body:
        raise NotShown("no run has three checkpoints or more, nor a log with rare_tokens; see --save-interval-updates")
    return body


def nearest(context: Context) -> str:
    """Nearest neighbours of some words, and their similarity to all others."""
    words = [*context.checkpoints, "--name", *context.names, *context.data]
    words += context.options("words", "groups", *TOKENISER)
    try:
        measured = context.measured("neighbors", neighbors, words, context.checkpoints)
    except UserError as error:
        if context.arguments.words is not None:
            raise
        raise NotShown(str(error)) from error  # no word that the command would choose
    body = page.measured_table(measured, turned=False)
    tokens = _single_tokens(measured)
    if tokens:
        figure = context.picture(
            "similarity", *context.checkpoints, "--name", *context.names, *context.data, *context.options("groups"),
            "--words", *tokens,
        )  # fmt: skip
        body += page.picture(figure, "Cosine of the words above with every token, by its frequency rank.")
    return body


def _single_tokens(measured: Measured) -> list[str]:
    """The words that are one token, as the dictionary has it."""
    return [word["tokens"][0]["token"] for word in measured.values["words"] if len(word["tokens"]) == 1]


def similarity(context: Context) -> str:
    """Agreement with people on which words are alike."""
    if context.arguments.datasets is None:
        raise NotShown("no --datasets were given")
    words = [*context.checkpoints, "--name", *context.names, *context.data]
    words += context.options("datasets", *TOKENISER)
    measured = context.measured("word-similarity", word_similarity, words, context.checkpoints)
    return page.measured_table(measured)


def frequencies(context: Context) -> str:
    """How often each token occurs."""
    figure = context.picture("frequencies", context.arguments.data)
    return page.picture(figure, "Occurrences of each token in the training split, by rank.")
