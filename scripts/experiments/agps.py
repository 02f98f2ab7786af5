"""Yu et al. (2021), "Rare Words Degenerate All Words": adaptive gradient partial scaling."""

from __future__ import annotations

from functools import partial

from .agg import KEEP_ALL, MT_WORDS, TOKENS_NOTE, TRANSLATION_NOTE
from .corpora import WIKITEXT103_WORDS, WMT14
from .experiment import Experiment, Measure, Method, Model, model_of
from .measures import BLEU, align_sim, check_aligner, isotropy, perplexity
from .pictures import over_updates, similarity

GROUPS = {"High-freq": "frequent", "Mid-freq": "medium", "Low-freq": "rare", "Total": "total"}
TINY_NOTE = "At tiny, the rank and the counts of AGPS are chosen for the small corpus."


def _mt(row: str, *overrides: str, **options: object) -> Model:
    scales = ("paper",) if row.startswith("big") else ("paper", "small", "tiny")
    return model_of(f"wmt14_en_de/agps-{row}", WMT14, *overrides, scales=scales, **options)


def _lm(row: str) -> Model:
    return model_of(f"wikitext103/agps-{row}", WIKITEXT103_WORDS)


MLE, COSREG, AGPS = _mt("base-mle"), _mt("base-cosreg"), _mt("base-agps")
UNTIL = _mt(
    "base-freeze-until",
    KEEP_ALL,
    scaled={
        "paper": ("optimization.max_update=24000", "checkpoint.save_interval_updates=1000"),
        "small": ("optimization.max_update=12000", "checkpoint.save_interval_updates=500"),
    },
)


def _similarities(number: int, word: int) -> Experiment:
    return Experiment(
        f"Yu et al. 2021, Figure {number}: cosines of {MT_WORDS[word]!r} with all tokens (WMT14 English to German)",
        [Method("Baseline", MLE), Method("CosReg", COSREG), Method("AGPS", AGPS)],
        pictures=[similarity(MT_WORDS, word)],
        note=f"At tiny, a rare word of the small corpus instead. {TINY_NOTE}",
    )


EXPERIMENTS = {
    "agps-1": Experiment(
        "Yu et al. 2021, Table 1: rare embeddings left as they were initialized (WMT14 English to German, base)",
        [
            Method("Baseline", MLE, ("27.3", "0.528")),
            Method("Freezing rare words", _mt("base-freeze"), ("28.0", "0.023")),
        ],
        [BLEU[0], Measure("S(w)", isotropy, "S(W)", 3), BLEU[1]],
        note=f"{TRANSLATION_NOTE} The paper freezes what is rarer than 1e-6 of the text; ours is the rarest 20% of the "
        "vocabulary.",
    ),
    "agps-2": Experiment(
        "Yu et al. 2021, Table 2: translation, WMT14 English to German",
        [
            Method("Baseline, base", MLE, ("27.30",)),
            Method("CosReg, base", COSREG, ("28.38",)),
            Method("Adv MLE, base", None, ("28.43",)),
            Method("SC, base", None, ("28.45",)),
            Method("AGPS, base", AGPS, ("28.61",)),
            Method("Baseline, big", _mt("big-mle"), ("28.40",)),
            Method("CosReg, big", _mt("big-cosreg"), ("28.94",)),
            Method("Adv MLE, big", None, ("29.52",)),
            Method("SC, big", None, ("29.32",)),
            Method("AGPS, big", _mt("big-agps"), ("29.58",)),
        ],
        BLEU,
        note=f"{TRANSLATION_NOTE} Adv MLE and SC are not part of this package. {TINY_NOTE}",
    ),
    "agps-3": Experiment(
        "Yu et al. 2021, Table 3: AlignSim (base models of Table 2)",
        [
            Method("Baseline", MLE, ("0.0087", "0.0056", "0.0026", "0.0054")),
            Method("CosReg", COSREG, ("0.0577", "0.0585", "0.0316", "0.0495")),
            Method("AGPS", AGPS, ("0.0996", "0.1121", "0.1163", "0.1103")),
        ],
        [Measure(label, align_sim, f"AlignSim {group}", 4) for label, group in GROUPS.items()],
        note=f"Word alignments by eflomal; the paper's are by fast_align. {TINY_NOTE}",
        check=check_aligner,
    ),
    "agps-4": Experiment(
        "Yu et al. 2021, Table 4: perplexity by relative frequency (WikiText-103, 6 layers)",
        [
            Method("Baseline", _lm("mle"), ("17.95", "314.68", "2953.56", "30.04")),
            Method("CosReg", _lm("cosreg"), ("17.44", "321.12", "3648.26", "29.66")),
            Method("AGPS", _lm("agps"), ("18.44", "379.21", "1751.66", "30.50")),
        ],
        [Measure(label, partial(perplexity, groups="frequency"), f"PPL {group}") for label, group in GROUPS.items()],
        note=f"{TINY_NOTE} {TOKENS_NOTE}",
    ),
    "agps-figure-2": Experiment(
        "Yu et al. 2021, Figure 2: mean inner products within the groups, rare words frozen until update 8,000",
        [Method("frozen, then trained", UNTIL)],
        pictures=[over_updates("inner-products", groups="frequency")],
        note="Frozen until update 4,000 at small, 100 at tiny. Trained for three times as long, at tiny twice.",
    ),
    **{f"agps-figure-{5 + word}": _similarities(5 + word, word) for word in range(3)},
}
