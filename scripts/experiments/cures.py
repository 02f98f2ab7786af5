"""The cures of degenerate embeddings side by side, on one small language model."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from agg_fairseq.data.word_pairs import dataset_files
from agg_fairseq.errors import UserError
from agg_fairseq.names import HUMAN

from .corpora import wikitext_in_words
from .experiment import Experiment, Measure, Method, Model
from .measures import perplexity, texts, word_similarity

AGG = ("criterion._name=agg", "criterion.agg_window=200")  # updates of 1,024 tokens: a tenth of an epoch of WikiText-2
AGG_30_EPOCH = ("criterion._name=agg", "criterion.agg_rare_fraction=0.3")
AGG_30 = (*AGG, *AGG_30_EPOCH)
FADED_60 = (*AGG, "criterion.agg_rare_fraction=0.6", "criterion.agg_gates=faded")
BIAS = ("model._name=transformer_lm_unigram",)
FIXED_BIAS = (*BIAS, "model.unigram_bias=fixed")
CENTERING = ("criterion.center_output=true",)
COUPLED = ("optimizer._name=coupled_adam",)

CURES: Mapping[str, tuple[str, ...]] = {
    "mle": (),
    "agg-0.3": AGG_30,
    "bias": BIAS,
    "bias-agg-0.3": (*BIAS, *AGG_30),
    "bias-fixed-agg-0.3": (*FIXED_BIAS, *AGG_30),
    "cosreg": ("criterion._name=cosreg",),
    "agps": (
        "criterion._name=agps", "criterion.agps_rare_rank=900", "criterion.agps_mu1=200", "criterion.agps_mu2=20",
    ),
    "agg-0.1": (*AGG, "criterion.agg_rare_fraction=0.1"),
    "agg-faded-0.6": FADED_60,
    "centering": CENTERING,
    "coupled-adam": COUPLED,
    "bias-faded-0.6": (*BIAS, *FADED_60),
}  # fmt: skip
"""Overrides of configs/cures/mle.yaml by the name of the model: those that are trained with every seed."""
ONCE: Mapping[str, tuple[str, ...]] = {
    "agg-0.3-coupled-adam": (*AGG_30, *COUPLED),
    "agg-0.3-centering": (*AGG_30, *CENTERING),
    "bias-coupled-adam": (*BIAS, *COUPLED),
    "bias-fixed": FIXED_BIAS,
    "mu-loss": ("criterion.mu_loss=1",),
    "z-loss": ("criterion.z_loss=1e-4",),
    "adversarial": ("criterion.adv_epsilon=0.005",),
    **{f"agg-0.3-w{window}": (*AGG_30, f"criterion.agg_window={window}") for window in (50, 400, 800)},
    "agg-0.3-epoch": AGG_30_EPOCH,
}
"""Those that are trained with the first seed alone."""
WORD_SETS = ("MEN", "RW")
"""The data sets of word similarity in the table."""


def cures(*, data: Path | None = None, updates: int = 4080, vocabulary: int = 10000) -> list[Experiment]:
    """Every cure of degenerate embeddings, and what it costs; `data` as of the demo."""
    corpus = wikitext_in_words(data, vocabulary)
    models = [
        Model(name, "cures/mle", corpus, (f"optimization.max_update={updates}", *own), every_seed=name in CURES)
        for name, own in {**CURES, **ONCE}.items()
    ]
    drawn = partial(texts, topk=40, max_texts=300)
    try:
        dataset_files(WORD_SETS)
        word_sets = WORD_SETS
    except UserError:  # the data sets are not there: the table goes without them
        word_sets = ()
    titles = ("PPL total", "PPL frequent", "PPL medium", "PPL rare", "Uniq total", "E/O rare", "I(W) total", "I(W−μ)",
              "IsoScore", "S(W)")  # fmt: skip
    measures = [
        *(Measure(title, perplexity, title) for title in titles),
        *(Measure(name, partial(word_similarity, datasets=WORD_SETS), name) for name in word_sets),
        Measure("KLD", drawn, "KLD"),
        Measure("Self-BLEU-2", drawn, "SB-2"),
    ]
    return [
        Experiment(
            "The cures of degenerate embeddings, same model, data and updates; test split",
            [*(Method(model.name, model) for model in models), Method(HUMAN, models[0], human=True)],
            measures,
            trade_off=("PPL total", "PPL rare", "IsoScore"),
            note="Word similarity (MEN, RW): Spearman × 100, if $AGG_DATA has the data sets. KLD (nats) and Self-BLEU "
            "(%): of continuations of the test split that are drawn from the 40 most probable tokens.",
            name="cures",
            wide=True,
            report=True,
        ),
    ]
