"""Gao et al. (2019), "Representation Degeneration Problem": cosine regularization."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from .agg import TOKENS_NOTE, TRANSLATION_NOTE
from .corpora import WIKITEXT2_WORDS, WMT14, translation_model
from .experiment import Column, Experiment, Method, Model
from .measures import BLEU, TO_ENGLISH, perplexity_of_awd_lstm
from .pictures import FREQUENCIES, SINGULAR_VALUES, projection


def _to_english(model: Model) -> Model:
    return replace(model, name=model.name.replace("cosreg-", "cosreg-de-en-", 1), overrides=TO_ENGLISH)


CACHE = 3785
"""Positions of the continuous cache of the authors of AWD-LSTM for WikiText-2: https://github.com/salesforce/awd-lstm-lm."""


def _awd_lstm(criterion: str) -> list[Model]:
    """AWD-LSTM, and fine-tuned."""
    model = Model(f"cosreg-{criterion}", f"wikitext2/cosreg-{criterion}", WIKITEXT2_WORDS)
    return [model, replace(model, name=f"{model.name}-finetune", config=f"{model.config}-finetune", start=model)]


AWD, AWD_TUNED = _awd_lstm("mle")
COS, COS_TUNED = _awd_lstm("cosreg")
_mt = partial(translation_model, "cosreg", WMT14, sizes="vaswani")
_big = partial(_mt, size="big", averaged=20)  # of which Vaswani et al. average the last 20 checkpoints
MLE, COSREG = _mt("mle"), _mt("cosreg")
CORPORA = {
    "a": ("WMT14 English-German in sub-words", replace(MLE, name="wmt14", corpus_only=True)),
    "b": ("WikiText-2 in words", replace(AWD, name="wikitext-2", corpus_only=True)),
}

EXPERIMENTS = {
    "cosreg-1": Experiment(
        "Gao et al. 2019, Table 1: an LSTM language model (WikiText-2)",
        [
            Method("2-layer skip connection LSTM", None, "69.1 65.9"),
            Method("AWD-LSTM (w.o. finetune)", AWD, "69.1 66.0"),
            Method("AWD-LSTM (w.t. finetune)", AWD_TUNED, "68.6 65.8"),
            Method("AWD-LSTM + continuous cache pointer", AWD_TUNED, "53.8 52.0", cache=CACHE),
            Method("MLE-CosReg (w.o. finetune)", COS, "68.2 65.2"),
            Method("MLE-CosReg (w.t. finetune)", COS_TUNED, "67.1 64.1"),
            Method("MLE-CosReg + continuous cache pointer", COS_TUNED, "51.7 50.0", cache=CACHE),
        ],
        [
            Column.of("Validation", partial(perplexity_of_awd_lstm, split="valid"), "perplexity", "total"),
            Column.of("Test", perplexity_of_awd_lstm, "perplexity", "total"),
        ],
        note="AWD-LSTM reads a split as one text and carries its state, so that perplexity does not depend on blocks. "
        "The cache has the authors' options for WikiText-2. At small it is the paper's size.",
    ),
    "cosreg-2": Experiment(
        "Gao et al. 2019, Table 2: translation, WMT14 English to German and back",
        [
            Method("En→De, ConvS2S", None, "25.16"),
            Method("En→De, base Transformer", MLE, "27.30"),
            Method("En→De, base + MLE-CosReg", COSREG, "28.38"),
            Method("En→De, big Transformer", _big("mle"), "28.40"),
            Method("En→De, big + MLE-CosReg", _big("cosreg"), "28.94"),
            Method("De→En, DSL", None, "20.81"),
            Method("De→En, Dual-NMT", None, "22.14"),
            Method("De→En, ConvS2S", None, "29.61"),
            Method("De→En, base Transformer", _to_english(MLE), "31.00"),
            Method("De→En, base + MLE-CosReg", _to_english(COSREG), "31.93"),
        ],
        BLEU,
        note=f"{TRANSLATION_NOTE} Of big models it is the mean of the last 20, as Vaswani et al. Of German to English, "
        "the paper says tokenized BLEU only. ConvS2S, DSL and Dual-NMT are not part of this package.",
    ),
    "cosreg-figure-2": Experiment(
        "Gao et al. 2019, Figure 2: embeddings and singular values with CosReg (WMT14 English to German)",
        [Method("MLE", MLE), Method("CosReg", COSREG)],
        pictures=[projection(), SINGULAR_VALUES],
    ),
    **{
        f"cosreg-figure-3{panel}": Experiment(
            f"Gao et al. 2019, Figure 3 ({panel}): how often each token occurs, by rank ({title})",
            [Method(title, corpus)],
            pictures=[FREQUENCIES],
            note="A curve per language. Nothing is trained. " + (TOKENS_NOTE if panel == "b" else ""),
        )
        for panel, (title, corpus) in CORPORA.items()
    },
}
