"""Our own experiments on the demo's small language model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from agg_fairseq.names import HUMAN

from . import f2
from .corpora import DOCUMENTATION, wikitext_in_words
from .cures import FIXED_BIAS
from .experiment import Corpus, Experiment, Measure, Method, Model
from .measures import COMPARED, perplexity, texts
from .pictures import projection, rare_tokens, singular_values

TITLES = (
    *(f"{name} {group}" for name in ("PPL", "Uniq", "I(W)") for group in ("frequent", "medium", "rare", "total")),
    "S(W)", "I(W−μ)", "mean share", "IsoScore", "E/O rare",
)  # fmt: skip
"""Columns of `agg-fairseq eval-lm`."""
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
SMALLER = (
    "model.decoder_embed_dim=64", "model.decoder_input_dim=64", "model.decoder_output_dim=64",
    "model.decoder_ffn_embed_dim=256",
)  # fmt: skip
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


def _models(corpus: Corpus, updates: int, models: Mapping[str, tuple[str, ...]]) -> list[Model]:
    """Models of configs/demo/mle.yaml by their names and overrides."""
    interval = min(updates, 10)
    shared = (
        f"optimization.max_update={updates}",
        f"checkpoint.save_interval_updates={max(1, updates // 10)}",  # an interrupted training goes on from there
        f"common.log_interval={interval}",
        f"criterion.embedding_stats_interval={interval}",
        "dataset.required_batch_size_multiple=8",  # fairseq's own, as in the tables of the documentation
    )
    return [Model(name, "demo/mle", corpus, (*shared, *overrides)) for name, overrides in models.items()]


def _comparison(title: str, models: Sequence[Model]) -> Experiment:
    """The table of eval-lm for several models, with pictures and a report."""
    return Experiment(
        title,
        [*(Method(model.name, model) for model in models), Method(HUMAN, models[0], human=True)],
        [Measure(column, perplexity, column) for column in TITLES],
        [projection(), singular_values(), rare_tokens()],
        name="table",
        wide=True,
        report=True,
    )


def demo(*, data: Path | None = None, updates: int | None = None, vocabulary: int | None = None) -> list[Experiment]:
    """Plain likelihood beside AGG, without and with a log-unigram bias that is not learned.

    `data` is a folder of the WikiText files, or a prepared one; None: the documentation of Python.
    """
    corpus = replace(DOCUMENTATION, options=("--vocabulary", str(vocabulary or 4000)))
    if data is not None:
        corpus = wikitext_in_words(data, vocabulary or 16000)
    updates = updates or (300 if data is None else 1000)
    agg = ("criterion._name=agg", RARE, f"criterion.agg_window={max(1, updates * 3 // 40)}")
    cures = {"mle": (), "agg": agg, "bias-fixed-agg": (*agg, *FIXED_BIAS)}
    models = _models(corpus, updates, cures)
    where = "the documentation of Python" if data is None else data.name
    note = (
        "In so short a training, embeddings have not degenerated yet: AGG alone costs perplexity, and gains only with "
        "the fixed bias. What it gains in a long one is in docs/which-cure.md."
    )
    return [replace(_comparison(f"The demo's model on {where}", models), measures=COMPARED, changes=True, note=note)]


def objectives(*, data: Path | None = None, updates: int = 2200, vocabulary: int = 10000) -> list[Experiment]:
    """The objectives of `OBJECTIVES` on the same model; `data` as of the demo."""
    models = {name: (*SMALLER, *overrides) for name, overrides in OBJECTIVES.items()}
    corpus = wikitext_in_words(data, vocabulary)
    return [_comparison("The objectives, same model and updates", _models(corpus, updates, models))]


def f2_softmax(*, data: Path | None = None, updates: int = 2200, vocabulary: int = 40000) -> list[Experiment]:
    """The ordinary softmax beside the factorized output layer, perplexities and then texts; `data` as of the demo."""
    models = _models(wikitext_in_words(data, vocabulary), updates, F2_MODELS)
    mle, mefmax, *fixed = models
    methods = [
        Method("mle-top3", mle),
        Method("f2-top3", mefmax, decoding="joint"),
        *(Method(f"{model.name}-top3-decoupled", model, decoding="decoupled") for model in (mefmax, *fixed)),
        Method("mle-greedy", mle, greedy=True),
        Method("f2-greedy", mefmax, decoding="joint", greedy=True),
        Method("f2-greedy-decoupled", mefmax, decoding="decoupled", greedy=True),
        Method(HUMAN, mle, human=True),
    ]
    shares = [f"{group} (%)" for group in ("frequent", "medium", "rare", "very rare")]
    return [
        _comparison("The ordinary softmax and the factorized output layer (WikiText-2)", models),
        Experiment(
            "Continuations of the test split, drawn from the 3 most probable tokens, or greedy",
            methods,
            [*f2.text_measures(3), *(Measure(share, partial(texts, topk=3), share) for share in shares)],
            name="text-metrics",
            wide=True,
        ),
    ]
