"""Cures of degenerate embeddings, and the factorized output layer, on one small translation model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from agg_fairseq.errors import UserError
from agg_fairseq.files import read_json_object

from ..data.prepared_folder import MANIFEST
from .corpora import WMT14
from .experiment import Experiment, Measure, Method, Model
from .measures import bleu, isotropy

CHECKPOINTS, AVERAGED = 20, 5
"""Of a training, and of these the last ones, whose mean translates (Vaswani et al. 2017)."""


def multi30k(*, data: Path | None = None, updates: int = 1000, vocabulary: int = 6000) -> list[Experiment]:
    """The methods of the translation tables, AGG with a log-unigram bias, and F²-Softmax.

    `data` is a folder of {train,valid,test}.{en,de}, or a prepared one. With less than one update per checkpoint, the
    best checkpoint translates.
    """
    if data is None or not ((data / "train.en").is_file() or (data / MANIFEST).is_file()):
        raise UserError(f"--data: found no train.en in {data}; expected the folder of Multi30k, task 1")
    if (data / MANIFEST).is_file():
        vocabulary = read_json_object(data / MANIFEST, "the manifest of a prepared corpus").get(
            "dictionary", vocabulary
        )
    corpus = replace(WMT14, options=("--tokenizer", "sentencepiece", "--vocabulary", str(vocabulary)))
    shared = (
        f"optimization.max_update={updates}",
        "lr_scheduler.warmup_updates=400",
        f"checkpoint.save_interval_updates={max(1, updates // CHECKPOINTS)}",
        f"checkpoint.keep_interval_updates={AVERAGED}",
    )
    # The window is 5% of the training. The rank is the same share of the vocabulary as 27,000 of WMT14's 40,624.
    agg = ("criterion._name=agg", "criterion.agg_rare_fraction=0.3", f"criterion.agg_window={max(1, updates // 20)}")
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
    overrides: Mapping[str, tuple[str, ...]] = {
        "mle": (),
        "cosreg": ("criterion._name=cosreg",),
        "agps": agps,
        "agg-0.3": agg,
        "bias-agg-0.3": (*bias, *agg),
        "f2": factorized,
    }
    averaged = AVERAGED if updates >= CHECKPOINTS else 0
    methods = [
        Method(
            name, Model(name, "wmt14_en_de/mle", corpus, (*shared, *own), averaged=averaged, every_seed=name != "f2")
        )
        for name, own in overrides.items()
    ]
    methods.append(replace(methods[-1], label="f2-greedy-class", decoding="greedy-class"))
    scores = partial(bleu, generate=("--beam", "5", "--batch-size", "64", "--remove-bpe", "sentencepiece"))
    return [
        Experiment(
            "Translation of the test set of Multi30k, English to German, beam 5",
            methods,
            [
                Measure("sacreBLEU", scores, "sacreBLEU"),
                Measure("BP", scores, "sacreBLEU BP"),
                Measure("I(W)", isotropy, "I(W) total"),
                Measure("IsoScore", isotropy, "IsoScore total"),
            ],
            name="table",
        )
    ]
