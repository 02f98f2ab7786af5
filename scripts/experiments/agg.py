"""Yu et al. (2022), "Rare Tokens Degenerate All Tokens": adaptive gradient gating."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from agg_fairseq.data.word_pairs import DATASETS

from .corpora import WIKITEXT103_GPT2, WMT14_AGG, translation_model
from .experiment import SCALES, Column, Experiment, Method, Model
from .measures import BLEU, ISOTROPY, PPL, UNIQ, neighbor_columns, sample_table, word_similarity
from .pictures import ALPHA_SWEEP, ISOTROPY_OVER_UPDATES, RARE_TOKENS, SINGULAR_VALUES, early_projection, projection

TOTALS = [PPL[-1], UNIQ[-1], ISOTROPY[-1]]

PROTOCOL_NOTE = (
    "As in the authors' commands, perplexity is that of blocks of 512 tokens of which the first 400 are context, and "
    "Uniq that of blocks of 512 without context; at tiny, of 128 and 100."
)
RARE_NOTE = "At tiny, the rare group is the rarest 5% at each update instead of an α."
TOKENS_NOTE = "At tiny, tokens are sentencepiece's sub-words, unless --data is a prepared folder."
TRANSLATION_NOTE = (
    "BLEU is tokenized with compounds split, as the paper's; sacreBLEU is of plain text. Mean of the last five "
    "checkpoints, beam 4, length penalty 0.6. Big models are trained at --scale paper only."
)


def _lm(name: str, config: str, *overrides: str, size: str = "agg") -> Model:
    return Model(f"agg-{name}", f"wikitext103/{config}", WIKITEXT103_GPT2, overrides, size)


def _frozen(parts: str) -> Model:
    return _lm(f"study-freeze-{parts}", "freeze", f"criterion.freeze_parts={parts}", size="agg-study")


_mt = partial(translation_model, "agg", WMT14_AGG)
BASE_MLE, BASE_AGG = _mt("mle"), _mt("agg")
STUDY_MLE = _lm("study-mle", "mle", size="agg-study")
STUDY_FREEZE = _lm("study-freeze", "freeze", size="agg-study")
MLE, AGG = _lm("mle", "mle"), _lm("agg", "agg")
STATIC = _lm("static", "agg", "criterion.agg_static_after_epoch=1")
UL, UL_AGG = _lm("ul", "ul"), _lm("ul-agg", "agg", "criterion.ul_alpha=1.0")
HUMAN = Method("Human", MLE, "- - - - 10844 7146 300 18920", human=True)

KEEP_ALL = "checkpoint.keep_interval_updates=-1"


def early(model: Model, count: int, every: Mapping[str, int]) -> Model:
    """The beginning of a training: its first `count` checkpoints, one in so many updates at each scale, all kept."""
    scaled = {
        scale: (f"optimization.max_update={count * updates}", f"checkpoint.save_interval_updates={updates}", KEEP_ALL)
        for scale, updates in every.items()
    }
    return replace(model, name=f"{model.name}-early", scaled=scaled)


EARLY = early(STUDY_MLE, 6, {"paper": 250, "small": 250, "tiny": 50})
FIRST = {scale: (f"optimization.max_update={300 if scale == 'tiny' else 1000}",) for scale in SCALES}
FIRST_UPDATES = replace(AGG, name="agg-agg-early", overrides=("common.log_interval=1",), scaled=FIRST)
STUDY_UPDATES = {"paper": 40000, "small": 10000, "tiny": 600}
UNTIL = {
    name: replace(
        _lm(f"study-freeze-until-{name}", "freeze-until", size="agg-study"),
        scaled={
            scale: (f"criterion.freeze_until={updates * eighths // 8}",) for scale, updates in STUDY_UPDATES.items()
        },
    )
    for name, eighths in {"an-eighth": 1, "a-quarter": 2, "half": 4, "three-quarters": 6}.items()
}
# A share of the vocabulary replaces α only where that has its default, so at tiny α is 0.03.
SWEEP = {
    alpha: replace(
        _lm(f"alpha-{alpha}", "agg"),
        scaled={
            **dict.fromkeys(("paper", "small"), (f"criterion.agg_alpha={alpha}",)),
            "tiny": ("criterion.agg_alpha=null", f"++criterion.agg_rare_fraction={share}"),
        },
    )
    for alpha, share in {0.01: 0.02, 0.02: 0.05, 0.03: 0.1, 0.04: 0.2, 0.05: 0.4}.items()
}

LM_WORDS = ("homepage", "Werewolf", "policymakers")
LM_NEIGHBORS = {
    "MLE": "homepage BOX inbox livestream namespace hashes Werewolf ASUS riet 480 nuclear ATCH policymakers Steam "
    "death Venezuel includ reason",
    "AGG": "homepage website webpage blog Tumblr websites Werewolf Creature Nightmare Bride Sneak Sniper policymakers "
    "politicians environmentalists activists planners economists",
}
MT_WORDS = ("optimum", "criminal", "happiness")
MT_NEIGHBORS = {
    "MLE": "optimum therto ratory consultan@@ sofar protection@@ criminal Criminal criminals perpetr@@ secution xious "
    "happiness juries enness ocopying ratory sacri@@",
    "AGG": "optimum optimal optimale* optimalen* maximum Optim@@ criminal criminals Criminal krimi@@* kriminalen* "
    "crime happiness happy joy happ@@ Glück* pleasure",
}
NEIGHBORS_NOTE = (
    "† marks rare tokens (the paper has them in red). At tiny, whose corpus lacks the paper's words, three rare words "
    "of its own are listed."
)

SAMPLES_NOTE = (
    "The texts are the first of the test split, 50 tokens of prefix and 100 of continuation, greedy, as the authors' "
    "evaluation.py by default; the paper's have other prefixes, so that their Uniq, the number of distinct tokens of a "
    "continuation, compares in size only."
)


def _sample_table(title: str, count: int, mle: str, agg: str) -> Experiment:
    methods = [Method("MLE", MLE, mle), Method("AGG", AGG, agg)]
    title, note = f"Yu et al. 2022, {title} (WikiText-103, models of Table 3)", f"{SAMPLES_NOTE} {RARE_NOTE}"
    return sample_table(title, methods, "Uniq", topk=None, count=count, note=note)


EXPERIMENTS = {
    "agg-1": Experiment(
        "Yu et al. 2022, Table 1: rare embeddings left as they were initialized (WikiText-103, 6 layers)",
        [
            Method("MLE", STUDY_MLE, "16.58 224.24 813.76 20.77 0.426 0.286 0.198 0.293"),
            Method("Freeze", STUDY_FREEZE, "16.48 233.92 3017.53 20.78 0.840 0.651 0.831 0.739"),
        ],
        [*PPL, *ISOTROPY],
        note=PROTOCOL_NOTE,
    ),
    "agg-2": Experiment(
        "Yu et al. 2022, Table 2: parts of the gradient of rare embeddings frozen (WikiText-103, 6 layers)",
        [
            Method("MLE", STUDY_MLE, "16.58 224.24 813.76 20.77 0.426 0.286 0.198 0.293"),
            Method("Freeze (b) & (c)", _frozen("bc"), "17.41 247.89 66.41 21.79 0.323 0.693 0.551 0.536"),
            Method("Freeze (b)", _frozen("b"), "16.99 240.72 65.76 21.26 0.495 0.561 0.678 0.748"),
            Method("Freeze (c)", _frozen("c"), "16.61 220.07 645.24 20.76 0.443 0.276 0.15 0.317"),
        ],
        [*PPL, *ISOTROPY],
        note=PROTOCOL_NOTE,
    ),
    "agg-3": Experiment(
        "Yu et al. 2022, Table 3: language modeling on WikiText-103",
        [
            Method("MLE", MLE, "13.30 146.47 438.67 15.51 9107 3945 91 13143 0.377"),
            Method("AGG", AGG, "13.35 146.44 75.39 15.51 9105 4287 345 13737 0.813"),
            HUMAN,
        ],
        [*PPL, *UNIQ, ISOTROPY[-1]],
        note=f"{PROTOCOL_NOTE} {RARE_NOTE}",
    ),
    "agg-4": Experiment(
        "Yu et al. 2022, Table 4: unlikelihood training, alone and with AGG (WikiText-103)",
        [
            Method("UL", UL, "14.05 125.17 385.6 16.17 9527 4402 97 14026 0.396"),
            Method("UL + AGG", UL_AGG, "14.17 125.93 71.48 16.25 9625 4884 453 14962 0.654"),
            HUMAN,
        ],
        [*PPL, *UNIQ, ISOTROPY[-1]],
        note=f"{PROTOCOL_NOTE} {RARE_NOTE}",
    ),
    "agg-5": _sample_table("Table 5: generated texts", 1, "15", "48"),
    "agg-6": Experiment(
        "Yu et al. 2022, Table 6: word similarity, Spearman × 100 (models of Table 3)",
        [Method("MLE", MLE, "33.57 47.51 35.48 32.13"), Method("AGG", AGG, "55.13 56.54 65.45 36.36")],
        [Column.of(dataset, word_similarity, "spearman", dataset) for dataset in DATASETS],
        note=f"{RARE_NOTE} As in the authors' code, sub-words that the dictionary lacks are <unk>, and no pair is left "
        "out.",
    ),
    "agg-7": Experiment(
        "Yu et al. 2022, Table 7: translation, WMT14 English to German",
        [
            Method("Transformer base", BASE_MLE, "27.30"),
            Method("CosReg base", _mt("cosreg"), "28.38"),
            Method("Adv MLE base", _mt("adv"), "28.43"),
            Method("SC base", None, "28.45"),
            Method("AGG base", BASE_AGG, "28.70"),
            Method("Transformer big", _mt("mle", "big"), "28.40"),
            Method("CosReg big", _mt("cosreg", "big"), "28.94"),
            Method("Adv MLE big", _mt("adv", "big"), "29.52"),
            Method("SC big", None, "29.32"),
            Method("AGG big", _mt("agg", "big"), "29.81"),
        ],
        BLEU,
        note=f"{TRANSLATION_NOTE} Adv MLE has the ε of its authors' code for language models, 0.005: that for "
        "translation was not found. SC, spectrum control, is quoted only: its equations were not found. At tiny, AGG's "
        "rare group is the rarest 30% at each update instead of an α.",
    ),
    "agg-8": Experiment(
        "Yu et al. 2022, Table 8: AGG without one of its gates (WikiText-103)",
        [
            Method("MLE", MLE, "15.51 13143 0.377"),
            Method("AGG", AGG, "15.51 13737 0.813"),
            Method("no g1", _lm("no-g1", "agg", "criterion.agg_gates=g2"), "15.48 13018 0.367"),
            Method("no g2", _lm("no-g2", "agg", "criterion.agg_gates=g1"), "15.51 13682 0.701"),
        ],
        TOTALS,
        note=f"{PROTOCOL_NOTE} {RARE_NOTE}",
    ),
    "agg-9": Experiment(
        "Yu et al. 2022, Table 9: a rare group that is fixed after the first epoch (WikiText-103)",
        [
            Method("MLE", MLE, "15.51 13143 0.377"),
            Method("AGG", AGG, "15.51 13737 0.813"),
            Method("static AGG", STATIC, "15.55 13614 0.752"),
        ],
        TOTALS,
        note=f"{PROTOCOL_NOTE} {RARE_NOTE} The 1.2 million tokens of such a training have to be more than an epoch: "
        "with a larger corpus, the group never becomes static.",
    ),
    "agg-10": Experiment(
        "Yu et al. 2022, Table 10: isotropy by frequency group (models of Table 3)",
        [Method("MLE", MLE, "0.51 0.33 0.278"), Method("AGG", AGG, "0.702 0.714 0.813")],
        ISOTROPY[:3],
        note=RARE_NOTE,
    ),
    "agg-11": Experiment(
        "Yu et al. 2022, Table 11: isotropy by frequency group (models of Table 4)",
        [Method("UL", UL, "0.533 0.351 0.293"), Method("UL + AGG", UL_AGG, "0.731 0.626 0.696")],
        ISOTROPY[:3],
        note=RARE_NOTE,
    ),
    "agg-13": Experiment(
        "Yu et al. 2022, Table 13: nearest neighbors of rare words (models of Table 3)",
        [Method(label, model, LM_NEIGHBORS[label]) for label, model in (("MLE", MLE), ("AGG", AGG))],
        neighbor_columns(LM_WORDS),
        note=f"{NEIGHBORS_NOTE} {RARE_NOTE}",
    ),
    "agg-14": Experiment(
        "Yu et al. 2022, Table 14: nearest neighbors of rare source words (base models of Table 7)",
        [Method(label, model, MT_NEIGHBORS[label]) for label, model in (("MLE", BASE_MLE), ("AGG", BASE_AGG))],
        neighbor_columns(MT_WORDS),
        note=f"{NEIGHBORS_NOTE} The paper's * marks a synonym in the other language.",
    ),
    "agg-15": _sample_table("Table 15: more generated texts", 4, "22 19 37 24", "43 55 63 52"),
    "agg-figure-1": Experiment(
        "Yu et al. 2022, Figure 1: the first updates of plain likelihood, in the plane of two singular directions",
        [Method("MLE", EARLY)],
        pictures=[early_projection(6)],
        note="The paper does not say which updates it shows.",
    ),
    "agg-figure-2": Experiment(
        "Yu et al. 2022, Figure 2: isotropy while rare embeddings are frozen, and after",
        [Method(f"frozen for {share} of the training", model) for share, model in UNTIL.items()],
        pictures=[ISOTROPY_OVER_UPDATES],
        note="The paper does not say until which updates it froze: ours are an eighth, a quarter, a half and three "
        "quarters of the training.",
    ),
    "agg-figure-3": Experiment(
        "Yu et al. 2022, Figure 3: embeddings and singular values of MLE and AGG (models of Table 3)",
        [Method("MLE", MLE), Method("AGG", AGG)],
        pictures=[projection(), SINGULAR_VALUES],
        note=RARE_NOTE,
    ),
    "agg-figure-4": Experiment(
        "Yu et al. 2022, Figure 4: the size of the rare group in the first updates",
        [Method("AGG", FIRST_UPDATES)],
        pictures=[RARE_TOKENS],
        note=f"1,000 updates, at tiny 300. {RARE_NOTE}",
    ),
    "agg-figure-5": Experiment(
        "Yu et al. 2022, Figure 5: how α changes AGG (WikiText-103)",
        [Method("MLE", MLE), *(Method(f"α = {alpha}", model) for alpha, model in SWEEP.items())],
        TOTALS,
        [ALPHA_SWEEP],
        note=f"{PROTOCOL_NOTE} The paper has a picture only. At tiny, shares of the vocabulary of 0.02, 0.05, 0.1, 0.2 "
        "and 0.4 are rare instead of an α.",
    ),
}
