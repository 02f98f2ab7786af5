"""Yu et al. (2021), "Rare Words Degenerate All Words": adaptive gradient partial scaling."""

from __future__ import annotations

from functools import partial

from .agg import KEEP_ALL, MT_NEIGHBORS, MT_WORDS, NEIGHBORS_NOTE, PROTOCOL_NOTE, TOKENS_NOTE, TRANSLATION_NOTE, early
from .corpora import WIKITEXT103_WORDS, WMT14, translation_model
from .experiment import Column, Experiment, Method, Model
from .measures import BLEU, align_sim, isotropy, neighbor_columns, perplexity_as_published
from .pictures import INNER_PRODUCTS_OVER_UPDATES, early_projection, projection, similarity

GROUPS = {"High-freq": "frequent", "Mid-freq": "medium", "Low-freq": "rare", "Total": "total"}
TINY_NOTE = "At tiny, the rank and the counts of AGPS are chosen for the small corpus."
NEIGHBORS = {  # Tables 10 to 12
    "Baseline": MT_NEIGHBORS["MLE"],
    "CosReg": "optimum optimize appropriate optimal optimized maximum criminal Criminal criminals crime crimin@@ "
    "terrorist happiness happy happ@@ satisfaction wellbeing joy",
    "AGPS": MT_NEIGHBORS["AGG"].replace("kriminalen*", "kriminellen*"),
}


def _lm(config: str) -> Model:
    return Model(f"agps-{config}", f"wikitext103/{config}", WIKITEXT103_WORDS, size="agps")


_mt = partial(translation_model, "agps", WMT14)
MLE, COSREG, AGPS, FREEZE = _mt("mle"), _mt("cosreg"), _mt("agps"), _mt("freeze")
EARLY = early(MLE, 4, {"paper": 1000, "small": 1000, "tiny": 50})
UNTIL = _mt(
    "freeze-until",
    overrides=(KEEP_ALL,),
    scaled={
        "paper": ("optimization.max_update=24000", "checkpoint.save_interval_updates=1000"),
        "small": ("optimization.max_update=12000", "checkpoint.save_interval_updates=500"),
    },
)


def _neighbors(number: int, label: str, model: Model) -> Experiment:
    return Experiment(
        f"Yu et al. 2021, Table {number}: nearest neighbors of three words, {label} (base model of Table 2)",
        [Method(label, model, NEIGHBORS[label])],
        neighbor_columns(MT_WORDS, groups="frequency"),
        note=f"{NEIGHBORS_NOTE} The paper's * marks a synonym in the other language. {TINY_NOTE}",
    )


def _similarities(number: int, word: int) -> Experiment:
    return Experiment(
        f"Yu et al. 2021, Figure {number}: cosines of {MT_WORDS[word]!r} with all tokens (WMT14 English to German)",
        [Method("Baseline", MLE), Method("CosReg", COSREG), Method("AGPS", AGPS)],
        pictures=[similarity(MT_WORDS[word])],
        note=f"At tiny, a rare word of the small corpus instead. {TINY_NOTE}",
    )


EXPERIMENTS = {
    "agps-1": Experiment(
        "Yu et al. 2021, Table 1: rare embeddings left as they were initialized (WMT14 English to German, base)",
        [Method("Baseline", MLE, "27.3 0.528"), Method("Freezing rare words", FREEZE, "28.0 0.023")],
        [BLEU[0], Column.of("S(w)", isotropy, "mean_cosine", "total"), BLEU[1]],
        note=f"{TRANSLATION_NOTE} Frozen is what makes up less than 1e-6 of the target tokens, as in the paper.",
    ),
    "agps-2": Experiment(
        "Yu et al. 2021, Table 2: translation, WMT14 English to German",
        [
            Method("Baseline, base", MLE, "27.30"),
            Method("CosReg, base", COSREG, "28.38"),
            Method("Adv MLE, base", None, "28.43"),
            Method("SC, base", None, "28.45"),
            Method("AGPS, base", AGPS, "28.61"),
            Method("Baseline, big", _mt("mle", "big"), "28.40"),
            Method("CosReg, big", _mt("cosreg", "big"), "28.94"),
            Method("Adv MLE, big", None, "29.52"),
            Method("SC, big", None, "29.32"),
            Method("AGPS, big", _mt("agps", "big"), "29.58"),
        ],
        BLEU,
        note=f"{TRANSLATION_NOTE} Adv MLE and SC are not part of this package. {TINY_NOTE}",
    ),
    "agps-3": Experiment(
        "Yu et al. 2021, Table 3: AlignSim (base models of Table 2)",
        [
            Method("Baseline", MLE, "0.0087 0.0056 0.0026 0.0054"),
            Method("CosReg", COSREG, "0.0577 0.0585 0.0316 0.0495"),
            Method("AGPS", AGPS, "0.0996 0.1121 0.1163 0.1103"),
        ],
        [Column.of(label, align_sim, "align_sim", group) for label, group in GROUPS.items()],
        note=f"Word alignments by eflomal; the paper's are by fast_align. {TINY_NOTE}",
    ),
    "agps-4": Experiment(
        "Yu et al. 2021, Table 4: perplexity by relative frequency (WikiText-103, 6 layers)",
        [
            Method("Baseline", _lm("mle"), "17.95 314.68 2953.56 30.04"),
            Method("CosReg", _lm("cosreg"), "17.44 321.12 3648.26 29.66"),
            Method("AGPS", _lm("agps"), "18.44 379.21 1751.66 30.50"),
        ],
        [
            Column.of(label, partial(perplexity_as_published, groups="frequency"), "perplexity", group)
            for label, group in GROUPS.items()
        ],
        note=f"{PROTOCOL_NOTE} (Those of Yu et al. (2022), since no code of this paper is public.) {TINY_NOTE} "
        f"{TOKENS_NOTE}",
    ),
    "agps-10": _neighbors(10, "Baseline", MLE),
    "agps-11": _neighbors(11, "CosReg", COSREG),
    "agps-12": _neighbors(12, "AGPS", AGPS),
    "agps-figure-1": Experiment(
        "Yu et al. 2021, Figure 1: the first updates of the baseline, in the plane of two singular directions",
        [Method("Baseline", EARLY)],
        pictures=[early_projection(4, groups="frequency")],
        note="The paper does not say which updates it shows.",
    ),
    "agps-figure-2": Experiment(
        "Yu et al. 2021, Figure 2: mean inner products within the groups, rare words frozen until update 8,000",
        [Method("frozen, then trained", UNTIL)],
        pictures=[INNER_PRODUCTS_OVER_UPDATES],
        note="Frozen until update 4,000 at small, 100 at tiny. Trained for three times as long, at tiny twice.",
    ),
    "agps-figure-3": Experiment(
        "Yu et al. 2021, Figure 3: embeddings of the baseline and with rare words frozen (models of Table 1)",
        [Method("Baseline", MLE), Method("Freezing rare words", FREEZE)],
        pictures=[projection(groups="frequency")],
    ),
    "agps-figure-4": Experiment(
        "Yu et al. 2021, Figure 4: embeddings of the base models of Table 2",
        [Method("Baseline", MLE), Method("CosReg", COSREG), Method("AGPS", AGPS)],
        pictures=[projection(groups="frequency")],
        note=TINY_NOTE,
    ),
    **{f"agps-figure-{5 + word}": _similarities(5 + word, word) for word in range(3)},
}
