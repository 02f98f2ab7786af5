"""Everything that reproduce.sh runs: the tables and figures of the papers, and our own experiments on small models."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from agg_fairseq.errors import UserError
from agg_fairseq.files import read_json_object
from agg_fairseq.names import HUMAN

from ..data.prepared_folder import MANIFEST, SPLITS
from ..data.wikitext_corpora import tokens_file
from . import agg, agps, cosreg, cures, f2, multi30k
from .corpora import DOCUMENTATION, WIKITEXT2_WORDS, WIKITEXT103_WORDS
from .experiment import Corpus, Experiment, Measure, Method, Model
from .measures import perplexity, texts
from .pictures import projection, rare_tokens, singular_values

LARGE = 100_000_000
"""Bytes of a training split that is taken for that of WikiText-103 (541 MB) and not of WikiText-2 (11 MB)."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
TAKEN = {"data-bin", "encoded", "text", "tokenizer", "results", "tables", HUMAN}
"""Names that no model may have: folders of an output folder, and the row of the human text."""
COLUMNS = {
    **{f"PPL {group}": 2 for group in ("frequent", "medium", "rare", "total")},
    **{f"Uniq {group}": 0 for group in ("frequent", "medium", "rare", "total")},
    **{f"I(W) {group}": 3 for group in ("frequent", "medium", "rare", "total")},
    **dict.fromkeys(("S(W)", "I(W−μ)", "mean share", "IsoScore"), 3),
    "E/O rare": 2,
}
"""The columns of `agg-fairseq eval-lm`, with their digits."""
RARE = "criterion.agg_rare_fraction=0.3"
OBJECTIVES: Mapping[str, tuple[str, ...]] = {
    "mle": (),
    "freeze": ("criterion._name=freeze_rare",),
    "freeze-b": ("criterion._name=freeze_rare", "criterion.freeze_parts=b"),
    "freeze-c": ("criterion._name=freeze_rare", "criterion.freeze_parts=c"),
    "freeze-bc": ("criterion._name=freeze_rare", "criterion.freeze_parts=bc"),
    "agg": ("criterion._name=agg", RARE),
    "agg-no-g1": ("criterion._name=agg", RARE, "criterion.agg_gates=g2"),
    "agg-no-g2": ("criterion._name=agg", RARE, "criterion.agg_gates=g1"),
    "agg-static": ("criterion._name=agg", RARE, "criterion.agg_static_after_epoch=1"),
    "agps": (
        "criterion._name=agps", "criterion.agps_rare_rank=930", "criterion.agps_mu1=500", "criterion.agps_mu2=20",
    ),
    "cosreg": ("criterion._name=cosreg",),
    "ul": ("criterion._name=unlikelihood",),
    "ul-agg": ("criterion._name=agg", RARE, "criterion.ul_alpha=1"),
    "agg-faded": ("criterion._name=agg", RARE, "criterion.agg_gates=faded"),
    "agg-faded-0.6": ("criterion._name=agg", "criterion.agg_rare_fraction=0.6", "criterion.agg_gates=faded"),
    "agg-0.1": ("criterion._name=agg", "criterion.agg_rare_fraction=0.1"),
}  # fmt: skip
"""Overrides of configs/demo/mle.yaml by the name of the model."""
F2 = ("model._name=transformer_lm_f2", "criterion._name=f2_softmax")
F2_MODELS: Mapping[str, tuple[str, ...]] = {
    "mle": (),
    "f2": F2,  # MefMax finds 13 classes, of at most 18
    **{
        f"{assignment}-{classes}": (*F2, f"model.f2_assignment={assignment}", f"model.f2_classes={classes}")
        for assignment, classes in (
            ("equal-frequency", 4), ("equal-frequency", 18), ("equal-token", 4), ("equal-token", 13),
        )
    },
}  # fmt: skip


@dataclass(frozen=True)
class Options:
    """Options of our own experiments; None where the user gave none.

    Args:
        corpus: `python` or `wikitext`.
        data: folder of the text.
        updates: of each model.
        vocabulary: number of sub-words, or of the most frequent words that are kept.
        dimension: of embeddings and layers, a multiple of 4.
        rare_fractions: shares of the vocabulary that are rare, in (0, 1), a model of `agg` for each.
        models: a name and options of fairseq-train for each model, instead of the entry's own.
        topk: number of most probable tokens that sampled texts are drawn from.
        max_texts: number of prefixes that are continued.
    """

    corpus: str | None = None
    data: Path | None = None
    updates: int | None = None
    vocabulary: int | None = None
    dimension: int | None = None
    rare_fractions: tuple[str, ...] | None = None
    models: tuple[str, ...] | None = None
    topk: int | None = None
    max_texts: int | None = None


@dataclass(frozen=True)
class Entry:
    """One of our own experiments, as the command line lists it.

    Args:
        title: in the list of all entries.
        output: default of --output.
        accepts: names of the options that it takes.
        build: the experiments that it consists of; raises UserError if the options do not fit.
        defaults: of the options, if they differ from those of the demo.
        jobs: default of --jobs.
    """

    title: str
    output: str
    accepts: tuple[str, ...]
    build: Callable[[Options], list[Experiment]]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    jobs: int = 1


def _language_models(options: Options, models: Mapping[str, tuple[str, ...]]) -> list[Model]:
    """Models of configs/demo/mle.yaml, on the text that the options say.

    Args:
        options: with defaults from `python` or `wikitext`.
        models: overrides by name.
    """
    wikitext = options.corpus == "wikitext"
    updates = options.updates or (1000 if wikitext else 400)
    dimension, interval = options.dimension or 128, min(updates, 10)
    size = (
        f"model.decoder_embed_dim={dimension}", f"model.decoder_input_dim={dimension}",
        f"model.decoder_output_dim={dimension}", f"model.decoder_ffn_embed_dim={4 * dimension}",
    )  # fmt: skip
    shared = (
        f"optimization.max_update={updates}",
        f"checkpoint.save_interval_updates={max(1, updates // 10)}",  # an interrupted training goes on from there
        f"common.log_interval={interval}",
        f"criterion.embedding_stats_interval={interval}",
        "dataset.required_batch_size_multiple=8",  # fairseq's own, as in the tables of the documentation
        *(() if dimension == 128 else size),
    )
    corpus = _text(options, wikitext)
    return [Model(name, "demo/mle", corpus, (*shared, *overrides)) for name, overrides in models.items()]


def _text(options: Options, wikitext: bool) -> Corpus:
    vocabulary = options.vocabulary or (16000 if wikitext else 8000)
    if not wikitext:
        if options.data is not None and not (options.data / MANIFEST).is_file():
            raise UserError(
                f"--data: found {options.data}, which was not prepared; with --corpus python the text is that of "
                "Python's documentation; leave --data out, or give --corpus wikitext"
            )
        return replace(DOCUMENTATION, options=("--vocabulary", str(vocabulary)))
    if options.data is None:
        raise UserError("--corpus wikitext: found no --data; expected the folder of wiki.train.tokens")
    if (options.data / MANIFEST).is_file():
        return replace(WIKITEXT2_WORDS, options=())
    files = [options.data / tokens_file(split) for split in SPLITS]
    for file in files:
        if not file.is_file():
            raise UserError(f"--data: found no {file.name} in '{options.data}'; expected the WikiText files")
    corpus = WIKITEXT103_WORDS if files[0].stat().st_size > LARGE else WIKITEXT2_WORDS
    return replace(corpus, options=("--tokenizer", "words", "--vocabulary", str(vocabulary)))


def _comparison(title: str, models: Sequence[Model], *, changes: bool = False) -> Experiment:
    """The table of eval-lm for several models, with pictures and a report."""
    return Experiment(
        title,
        [*(Method(model.name, model) for model in models), Method(HUMAN, models[0], human=True)],
        [
            Measure(column, perplexity, column, digits, relative=column.startswith(("PPL", "Uniq")))
            for column, digits in COLUMNS.items()
        ],
        [projection(), singular_values(), rare_tokens()],
        name="table",
        wide=True,
        changes=changes,
        report=True,
    )


def demo(options: Options) -> list[Experiment]:
    """Plain likelihood beside adaptive gradient gating, or the models of --model.

    Raises:
        UserError: an option does not fit.
    """
    fractions = options.rare_fractions or ("0.2",)
    models: dict[str, tuple[str, ...]] = {"mle": ()}
    for fraction in fractions:
        models[f"agg-{fraction}"] = ("criterion._name=agg", f"criterion.agg_rare_fraction={fraction}")
    if options.models:
        from ..training.configuration import overrides_of_options

        models = {}
        for given in options.models:
            name, *words = given.split() or [""]
            if name in TAKEN or name in models or re.fullmatch(r"seed-\d+", name):
                raise UserError(f"--model: found the name '{name}' twice, or it is taken; expected another for each")
            if "\n" in given or not NAME.fullmatch(name) or not words or "--criterion" not in words:
                raise UserError(
                    f"--model: found '{given}'; expected a name of letters, digits, '.', '_', '-', then options with "
                    "--criterion"
                )
            models[name] = overrides_of_options(words)
    title = f"The demo's model on {'WikiText' if options.corpus == 'wikitext' else 'the documentation of Python'}"
    return [_comparison(title, _language_models(options, models), changes=True)]


def objectives(options: Options) -> list[Experiment]:
    """The objectives of `OBJECTIVES` on the same model, or the models of --model.

    Raises:
        UserError: an option does not fit.
    """
    if options.models or options.rare_fractions:
        return demo(options)
    return [_comparison("The objectives, same model and updates", _language_models(options, OBJECTIVES))]


def f2_softmax(options: Options) -> list[Experiment]:
    """The ordinary softmax beside the factorized output layer: perplexities, then texts.

    Raises:
        UserError: an option does not fit.
    """
    models = _language_models(options, F2_MODELS)
    mle, mefmax, *fixed = models
    topk = options.topk or 3
    rows = {
        f"mle-top{topk}": mle,
        f"f2-top{topk}": replace(mefmax, decoding="joint"),
        **{f"{model.name}-top{topk}-decoupled": replace(model, decoding="decoupled") for model in (mefmax, *fixed)},
        "mle-greedy": replace(mle, greedy=True),
        "f2-greedy": replace(mefmax, decoding="joint", greedy=True),
        "f2-greedy-decoupled": replace(mefmax, decoding="decoupled", greedy=True),
    }
    evaluate = partial(texts, topk=topk, max_texts=options.max_texts)
    shares = [f"{group} (%)" for group in ("frequent", "medium", "rare", "very rare")]
    return [
        _comparison("The ordinary softmax and the factorized output layer (WikiText-2)", models),
        Experiment(
            f"Continuations of the test split, drawn from the {topk} most probable tokens, or greedy",
            [*(Method(label, model) for label, model in rows.items()), Method(HUMAN, mle, human=True)],
            [*f2.text_measures(topk, options.max_texts), *(Measure(share, evaluate, share, 1) for share in shares)],
            name="text-metrics",
            wide=True,
        ),
    ]


def _multi30k(options: Options) -> list[Experiment]:
    """Translation with cures of degenerate embeddings, and with the factorized output layer, on Multi30k.

    Raises:
        UserError: an option does not fit.
    """
    if options.data is None:
        raise UserError("found no --data; expected the folder of train.en and train.de")
    files = [options.data / f"{split}.{language}" for split in SPLITS for language in ("en", "de")]
    missing = [file.name for file in files if not file.is_file()]
    if missing and not (options.data / MANIFEST).is_file():
        raise UserError(f"--data: found no {missing[0]} in '{options.data}'; expected the files of Multi30k, task 1")
    vocabulary = options.vocabulary or 6000
    if (options.data / MANIFEST).is_file():
        vocabulary = read_json_object(options.data / MANIFEST, "the manifest of a prepared folder").get("dictionary")
        if not isinstance(vocabulary, int):
            raise UserError(f"{options.data / MANIFEST}: found no size of the dictionary; run prepare.sh again")
    return multi30k.translation(
        updates=options.updates or 1000, vocabulary=vocabulary, dimension=options.dimension or 128
    )


def _cures(options: Options) -> list[Experiment]:
    """The cures of degenerate embeddings side by side.

    Raises:
        UserError: an option does not fit.
    """
    return cures.cures(_text(options, wikitext=True), options.updates or 4080, options.max_texts or 300)


EXPERIMENTS: dict[str, Experiment] = {
    **agg.EXPERIMENTS,
    **agps.EXPERIMENTS,
    **f2.EXPERIMENTS,
    **cosreg.EXPERIMENTS,
}
"""Tables and figures, by the names that the command line takes."""
SIZES = ("updates", "dimension")
OURS: dict[str, Entry] = {
    "demo": Entry(
        "plain likelihood and adaptive gradient gating on a small language model",
        "runs/demo",
        (*SIZES, "data", "corpus", "vocabulary", "rare_fractions", "models"),
        demo,
        jobs=min(2, len(os.sched_getaffinity(0))),  # a core each is faster than both for one after the other
    ),
    "objectives": Entry(
        "AGG and its variants, freezing, AGPS, CosReg and unlikelihood on a small language model",
        "runs/objectives",
        (*SIZES, "data", "corpus", "vocabulary", "rare_fractions", "models"),
        objectives,
        {"corpus": "wikitext", "vocabulary": 10000, "dimension": 64, "updates": 2200},
    ),
    "f2": Entry(
        "the ordinary softmax and the factorized output layer on a small language model, with texts",
        "runs/f2-softmax",
        (*SIZES, "data", "topk", "max_texts"),
        f2_softmax,
        {"corpus": "wikitext", "vocabulary": 40000, "updates": 2200},
    ),
    "multi30k": Entry(
        "the objectives of the translation tables, AGG with a bias, and the factorized layer, on a small model",
        "runs/multi30k",
        (*SIZES, "data", "vocabulary"),
        _multi30k,
    ),
    "cures": Entry(
        "every cure of degenerate embeddings, and what it costs, on a small language model",
        "runs/cures",
        ("updates", "data", "vocabulary", "max_texts"),
        _cures,
        {"corpus": "wikitext", "vocabulary": 10000},
    ),
}
"""Our own experiments, by the names that the command line takes."""
