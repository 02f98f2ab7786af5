"""The cures of degenerate embeddings side by side, on one small language model."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from agg_fairseq.data.word_pairs import dataset_files
from agg_fairseq.errors import UserError
from agg_fairseq.names import HUMAN

from .experiment import Corpus, Experiment, Measure, Method, Model
from .measures import perplexity, texts, word_similarity

WINDOW = "criterion.agg_window=200"
"""In updates of 1,024 tokens: a tenth of an epoch of WikiText-2."""
AGG = ("criterion._name=agg", WINDOW)
AGG_30_EPOCH = ("criterion._name=agg", "criterion.agg_rare_fraction=0.3")
AGG_30 = (*AGG_30_EPOCH, WINDOW)
FADED_60 = (*AGG, "criterion.agg_rare_fraction=0.6", "criterion.agg_gates=faded")
BIAS = ("model._name=transformer_lm_unigram",)
FIXED_BIAS = (*BIAS, "model.unigram_bias=fixed")
CENTERING = ("criterion.center_output=true",)
COUPLED = ("optimizer._name=coupled_adam",)

WORD_SETS = ("MEN", "RW")
"""The data sets of word similarity in the table."""

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
    "agg-0.3-w50": (*AGG_30_EPOCH, "criterion.agg_window=50"),
    "agg-0.3-w400": (*AGG_30_EPOCH, "criterion.agg_window=400"),
    "agg-0.3-w800": (*AGG_30_EPOCH, "criterion.agg_window=800"),
    "agg-0.3-epoch": AGG_30_EPOCH,
}
"""Those that are trained with the first seed alone."""


def cures(corpus: Corpus, updates: int, max_texts: int) -> list[Experiment]:
    """Every cure, and the combinations that make sense, at equal compute.

    Args:
        corpus: in words or sub-words.
        updates: of each training; the learning rate falls linearly over them.
        max_texts: number of prefixes of the test split that each model continues.
    """
    shared = (f"optimization.max_update={updates}",)
    models = [Model(name, "cures/mle", corpus, (*shared, *overrides)) for name, overrides in CURES.items()]
    models += [
        Model(name, "cures/mle", corpus, (*shared, *overrides), every_seed=False) for name, overrides in ONCE.items()
    ]
    drawn = partial(texts, topk=40, max_texts=max_texts)
    try:
        dataset_files(WORD_SETS)
        word_sets = WORD_SETS
    except UserError:  # the data sets are not there: the table goes without them
        word_sets = ()
    measures = [
        *(Measure(f"PPL {group}", perplexity, f"PPL {group}") for group in ("total", "frequent", "medium", "rare")),
        Measure("Uniq", perplexity, "Uniq total", 0),
        Measure("E/O rare", perplexity, "E/O rare"),
        Measure("I(W)", perplexity, "I(W) total", 3),
        Measure("I(W−μ)", perplexity, "I(W−μ)", 3),
        Measure("IsoScore", perplexity, "IsoScore", 3),
        Measure("S(W)", perplexity, "S(W)", 3),
        *(Measure(name, partial(word_similarity, datasets=WORD_SETS), name) for name in word_sets),
        Measure("KLD", drawn, "KLD"),
        Measure("Self-BLEU-2", drawn, "SB-2", 1),
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
