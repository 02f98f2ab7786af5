"""Cures of degenerate embeddings, and the factorized output layer, on one small translation model."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from .corpora import WMT14
from .experiment import Experiment, Measure, Method, Model, Workspace
from .measures import bleu, isotropy

if TYPE_CHECKING:
    from agg_fairseq.evaluation import Result

CHECKPOINTS, AVERAGED = 20, 5
"""Of a training, and of these the last ones, whose mean translates (Vaswani et al. 2017)."""


def translation(*, updates: int, vocabulary: int, dimension: int) -> list[Experiment]:
    """The methods of the translation tables, AGG with a log-unigram bias, and F²-Softmax.

    Args:
        updates: of each training. With less than one per checkpoint, the best checkpoint translates.
        vocabulary: number of sub-words of both languages; of a prepared folder, that of its dictionary.
        dimension: of embeddings and layers, a multiple of 4.
    """
    corpus = replace(WMT14, options=("--tokenizer", "sentencepiece", "--vocabulary", str(vocabulary)))
    size = tuple(
        f"model.{side}_{name}={factor * dimension}"
        for side in ("encoder", "decoder")
        for name, factor in (("embed_dim", 1), ("ffn_embed_dim", 2))
    )
    shared = (
        f"optimization.max_update={updates}",
        "lr_scheduler.warmup_updates=400",
        f"checkpoint.save_interval_updates={max(1, updates // CHECKPOINTS)}",
        f"checkpoint.keep_interval_updates={AVERAGED}",
        *(() if dimension == 128 else size),
    )
    # The window is 5% of the training. The rank is the same share of the vocabulary as 27,000 of WMT14's 40,624.
    agg = (
        "criterion._name=agg", "criterion.agg_rare_fraction=0.3", f"criterion.agg_window={max(1, updates // 20)}",
    )  # fmt: skip
    agps = (
        "criterion._name=agps", f"criterion.agps_rare_rank={vocabulary * 2 // 3}", "criterion.agps_mu1=50",
        "criterion.agps_mu2=15",
    )  # fmt: skip
    # All options that a layer reads: fairseq-hydra-train knows no defaults of translation models.
    subset = "model.train_subset=${dataset.train_subset}"
    bias = ("model._name=transformer_unigram", "model.unigram_bias=learned", subset)
    factorized = (
        "model._name=transformer_f2", "criterion._name=f2_softmax", "model.f2_assignment=mefmax", "model.f2_classes=0",
        "model.f2_decoding=joint", subset, "model.save_dir=${checkpoint.save_dir}",
        "model.restore_file=${checkpoint.restore_file}",
    )  # fmt: skip
    overrides = {
        "mle": (),
        "cosreg": ("criterion._name=cosreg",),
        "agps": agps,
        "agg-0.3": agg,
        "bias-agg-0.3": (*bias, *agg),
        "f2": factorized,
    }
    averaged = AVERAGED if updates >= CHECKPOINTS else 0
    models = {
        name: Model(
            name, "wmt14_en_de/agg-base-mle", corpus, (*shared, *own), averaged=averaged, every_seed=name != "f2"
        )
        for name, own in overrides.items()
    }
    rows = {**models, "f2-greedy-class": replace(models["f2"], decoding="greedy-class")}
    return [
        Experiment(
            "Translation of the test set of Multi30k, English to German, beam 5",
            [Method(label, model) for label, model in rows.items()],
            [
                Measure("sacreBLEU", _beam_5, "sacreBLEU", 1),
                Measure("BP", _beam_5, "sacreBLEU BP", 3),
                Measure("I(W)", isotropy, "I(W) total", 3),
                Measure("IsoScore", isotropy, "IsoScore total", 3),
            ],
            name="table",
        )
    ]


def _beam_5(workspace: Workspace, model: Model) -> Result:
    options = ["--beam", "5", "--batch-size", "64", "--remove-bpe", "sentencepiece"]
    if model.decoding is None:
        return bleu(workspace, model, generate=options)
    options += ["--model-overrides", str({"f2_decoding": model.decoding})]
    return bleu(workspace, model, generate=options, name=f"generate-{model.decoding}")
