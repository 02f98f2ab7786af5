"""Choi et al. (2020), "F²-Softmax": the frequency-factorized output layer and its baselines."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from agg_fairseq.columns import METRICS
from agg_fairseq.names import HUMAN

from ..data.files import read_lines
from ..data.wikitext_source import tokens_file
from .corpora import WIKITEXT103_PIECES, prepare
from .experiment import Column, Experiment, Method, Model, Value, Workspace
from .measures import perplexity, sample_table, texts, titled
from .pictures import picture

TOPK = 3
HEADING = re.compile(r" ?= [^=].* = ?")  # the first line of an article of WikiText
TEXT_MEASURES = {
    "kld": [""],
    **dict.fromkeys(("ms_jaccard", "self_bleu", "distinct"), ("1", "2", "3")),
    **dict.fromkeys(("repetition", "unique_tokens"), [""]),
}
CLASSES = (2, 4, 8, 16)
"""Of the layers with fixed classes; the paper's figure goes past MefMax's choice without saying how far."""


def _lm(name: str, config: str, *overrides: str, start: Model | None = None, convert: bool = False) -> Model:
    corpus = WIKITEXT103_PIECES
    return Model(f"f2-{name}", f"wikitext103/{config}", corpus, overrides, size="f2", start=start, convert=convert)


MLE, UL = _lm("mle", "mle"), _lm("ul-token", "ul")
FACE = _lm("face", "face", start=MLE)
UL_SEQ = _lm("ul-token-seq", "ul-sequence", start=UL)
CORPUS = replace(MLE, name="corpus", corpus_only=True)
F2, TRANSFERRED = _lm("f2", "f2"), _lm("transfer", "f2", start=MLE, convert=True)
SWEPT = [
    _lm(f"{assignment}-{classes}", "f2", f"model.f2_assignment={assignment}", f"model.f2_classes={classes}")
    for assignment in ("equal-frequency", "equal-token")
    for classes in CLASSES
]


def text_columns(topk: int | None) -> list[Column]:
    """All measures of texts that a table of the paper has, of texts drawn from the `topk` most probable tokens."""
    return titled(partial(texts, topk=topk), TEXT_MEASURES)


PPL = Column.of("PPL", perplexity, "perplexity", "total")
HUMAN_TEXT = "- - - - 95.2 74.1 50.9 69.1 92.1 95.8 0.11 15.2k"
METHODS = {
    method.label: method
    for method in (
        Method("MLE", MLE),
        Method("FACE", FACE),
        Method("UL-token", UL),
        Method("UL-token+seq", UL_SEQ),
        Method("F²-Softmax", F2, decoding="decoupled"),
    )
}
PERPLEXITIES = {"MLE": "24.7", "FACE": "29.7", "UL-token": "25.8", "UL-token+seq": "27.5", "F²-Softmax": "25.6"}
GREEDY = {
    "MLE": "2.17 45.6 29.9 20.5 92.8 83.6 73.2 31.4 48.8 57.8 18.3 6.23k",
    "FACE": "1.67 47.9 29.9 19.8 89.6 73.6 57.3 38.4 54.3 62.0 21.0 8.03k",
    "UL-token": "1.88 47.2 30.7 20.9 92.9 83.7 73.3 37.1 56.3 65.6 12.8 7.66k",
    "UL-token+seq": "2.06 41.5 26.9 18.4 95.6 86.6 74.2 49.9 78.1 89.8 0.3 8.33k",
    "F²-Softmax": "1.63 49.0 31.2 21.0 90.2 78.7 66.3 36.3 54.6 63.8 12.5 9.08k",
}
SAMPLED = {
    3: {
        "MLE": "1.51 52.1 35.6 24.3 93.4 83.2 69.7 45.1 71.9 83.0 0.67 8.48k",
        "FACE": "1.26 53.3 33.2 21.7 92.3 76.5 57.6 53.4 77.1 85.5 2.1 10.3k",
        "UL-token": "1.28 54.3 36.7 24.8 93.7 82.4 68.1 50.0 77.3 87.1 0.39 10.2k",
        "UL-token+seq": "1.33 50.6 35.4 23.5 95.3 83.4 66.9 57.6 86.6 94.2 0.11 10.6k",
        "F²-Softmax": "0.62 67.4 42.4 26.4 93.3 71.9 48.1 65.7 89.7 94.4 0.33 15.7k",
    },
    5: {
        "MLE": "1.34 55.9 37.9 25.6 94.1 82.8 67.7 50.0 78.1 87.8 0.73 9.2k",
        "FACE": "1.08 53.2 34.1 22.0 93.2 77.0 56.2 58.3 82.4 89.4 0.9 11.6k",
        "UL-token": "1.11 57.6 38.7 25.8 93.9 81.1 64.4 54.6 82.0 90.3 0.55 12.1k",
        "UL-token+seq": "1.07 55.8 36.5 23.7 95.8 82.1 62.5 61.4 90.4 96.0 0.09 12.1k",
        "F²-Softmax": "0.59 67.3 41.9 25.9 93.4 70.6 45.9 67.8 90.9 95.0 0.22 16.2k",
    },
    10: {
        "MLE": "1.12 60.2 40.6 27.0 94.0 80.9 63.1 54.7 83.0 91.0 0.89 10.3k",
        "FACE": "1.02 53.6 33.9 21.4 93.1 74.4 50.6 63.5 87.2 92.6 0.61 12.0k",
        "UL-token": "0.95 62.0 41.1 26.9 94.2 79.0 59.4 59.3 86.5 93.1 0.61 12.3k",
        "UL-token+seq": "0.93 60.9 39.3 25.0 95.2 78.0 55.0 65.9 92.9 96.8 0.01 12.9k",
        "F²-Softmax": "0.57 67.4 41.8 25.6 93.5 69.5 44.2 69.1 91.5 95.2 0.22 16.7k",
    },
    20: {
        "MLE": "0.95 63.5 42.4 27.8 94.2 78.9 58.8 58.9 86.5 93.0 0.39 11.5k",
        "FACE": "0.96 53.2 33.3 20.6 93.5 72.6 46.4 67.6 90.2 94.2 0.33 12.0k",
        "UL-token": "0.79 65.5 42.4 27.3 94.2 76.5 54.5 63.3 89.4 94.6 0.55 13.6k",
        "UL-token+seq": "0.79 64.8 41.0 25.4 95.2 74.9 49.4 69.9 94.4 97.2 - 14.1k",
        "F²-Softmax": "0.54 67.2 41.2 25.2 93.4 68.2 42.3 69.8 91.9 95.3 0.16 17.1k",
    },
}
"""The numbers of Table 10 (a) after the perplexity, by k; where k is 3 as Table 1 prints them."""


def _methods(*numbers: dict[str, str]) -> list[Method]:
    """The methods and the human texts, with the perplexity and then these numbers of the paper."""
    papers = {label: " ".join([PERPLEXITIES[label], *(of_k[label] for of_k in numbers)]) for label in METHODS}
    rows = [replace(method, paper=papers[label]) for label, method in METHODS.items()]
    return [*rows, Method("Human", MLE, " ".join(["-", *[HUMAN_TEXT] * len(numbers)]), human=True)]


LYRICS = (
    "The paper's numbers are for Melo-Lyrics, drawn from the 20 most probable tokens. That corpus cannot be obtained; "
    "ours are for the corpus of Table 1, drawn from 3."
)
ABLATED = [column for column in text_columns(TOPK) if column.label in ("KLD", "MSJ-2", "SB-2", "Uniq")]

WON = {  # Table 9 (a): the measures that it won against each method, in their order, and lost
    "MLE": "- - - - -",
    "FACE": "4-3 - - - -",
    "UL-token": "5-2 4-3 - 4-3 -",
    "UL-token+seq": "4-3 4-3 - - -",
    "F²-Softmax": "6-1 6-1 6-1 5-2 -",
}


DUEL = (
    ("kld", ""), ("ms_jaccard", "3"), ("self_bleu", "3"), ("distinct", "3"), ("repetition", ""), ("unique_tokens", ""),
)  # fmt: skip
"""The measures of texts that Table 9 counts, beside the perplexity.

The paper does not say which n-grams it compares. With trigrams, its Table 2 gives all ten results of its Table 9 on
WikiText-103, which a test checks; with bigrams or the mean over n it does not.
"""


Values = Mapping[str, float | None]  # by the name of the measure


def wins(first: Values, second: Values, human: Values) -> int:
    """The number of measures, `perplexity` and those of `DUEL`, in which the first model is better than the second."""
    distances = {name: METRICS[name].distance(human.get(name)) for name in first}
    return sum(distance(first[name]) < distance(second[name]) for name, distance in distances.items())


def duel(workspace: Workspace, method: Method, *, opponent: Method) -> Value:
    """The measures of greedy texts that a method wins and loses against another, as `6-1`; None against itself."""
    values = []
    for fighter in (method, opponent):
        name, result = fighter.model.name, texts(workspace, fighter, topk=None)
        total = perplexity(workspace, fighter).value(name, "perplexity", "total")
        values.append({measure: result.value(name, measure, key) for measure, key in DUEL} | {"perplexity": total})
    human = {measure: result.value(HUMAN, measure, key) for measure, key in DUEL}
    score = f"{wins(*values, human)}-{wins(*reversed(values), human)}"
    return None if method.model == opponent.model else score


def corpus_size(workspace: Workspace, method: Method, *, unit: str, split: str) -> Value:
    """The articles, words or sub-words of a split; None where the plain text is not stored."""
    from agg_fairseq.data.binarized import count_tokens, load_dictionary

    corpus = prepare(workspace, method.model.corpus)
    if unit == "sub-words":
        return int(count_tokens(corpus.binarized, load_dictionary(corpus.binarized), split).sum())
    path = corpus.folder / "text" / tokens_file(split)
    if not path.is_file():
        return None
    sizes = (bool(HEADING.fullmatch(line)) if unit == "articles" else len(line.split()) for line in read_lines(path))
    return sum(sizes) or None


def _sample_table(title: str, count: int, very_rare: dict[str, str]) -> Experiment:
    return sample_table(
        f"Choi et al. 2020, {title}, with the share of very rare tokens (WikiText-103)",
        [replace(METHODS[label], paper=numbers) for label, numbers in very_rare.items()],
        "VR (%)",
        topk=TOPK,
        count=count,
        note=f"The texts are the first of the test split, 50 tokens of prefix and 100 of continuation, drawn from the "
        f"{TOPK} most probable tokens; the paper's texts have other prefixes.",
    )


EXPERIMENTS = {
    "f2-1": Experiment(
        "Choi et al. 2020, Table 1 (a): texts drawn from the 3 most probable tokens (WikiText-103)",
        _methods(SAMPLED[TOPK]),
        [PPL, *text_columns(TOPK)],
    ),
    "f2-2": Experiment(
        "Choi et al. 2020, Table 2 (a): greedy texts (WikiText-103)", _methods(GREEDY), [PPL, *text_columns(None)]
    ),
    "f2-3": Experiment(
        "Choi et al. 2020, Table 3: F²-Softmax without decoupled decoding",
        [
            Method("F², decoupled", F2, "0.13 52.4 76.1 25.2k", decoding="decoupled"),
            Method("F², joint", F2, "0.31 47.4 81.9 22.6k", decoding="joint"),
            Method("MLE", MLE, "0.34 47.3 83.1 22.4k"),
        ],
        ABLATED,
        note=LYRICS,
    ),
    "f2-4": _sample_table(
        "Table 4: generated texts",
        1,
        {"MLE": "6.7", "FACE": "4", "UL-token": "5.3", "UL-token+seq": "8", "F²-Softmax": "9.3"},
    ),
    "f2-5": Experiment(
        "Choi et al. 2020, Table 5 (a): the size of the corpus (WikiText-103)",
        [Method("WikiText-103", CORPUS, "28,475 113,655,420 - 60 269,551 - 60 236,966 -")],
        [
            Column(f"{unit} {split}", partial(corpus_size, unit=unit, split=split))
            for split in ("train", "test", "valid")
            for unit in ("articles", "words", "sub-words")
        ],
        note="Nothing is trained. Articles are headings of the first level, words are separated by spaces; the "
        "documentation of Python, the text of tiny, is kept in sub-words only. The paper does not say how it counts "
        "words: WikiText-103 has 103,227,021 with ends of lines.",
    ),
    "f2-8": Experiment(
        "Choi et al. 2020, Table 8: F²-Softmax from a model of the ordinary softmax",
        [
            Method("From scratch", F2, "13.2 52.4 76.1 25.2k", decoding="decoupled"),
            Method("Transferred", TRANSFERRED, "9.8 56.1 74.7 23.9k", decoding="decoupled"),
        ],
        [PPL, *ABLATED[1:]],
        note=f"{LYRICS} The paper goes on from a model of 10 GB of news, ours from the likelihood model of Table 1.",
    ),
    "f2-9": Experiment(
        "Choi et al. 2020, Table 9 (a): measures of greedy texts that each model wins and loses (WikiText-103)",
        [replace(method, paper=WON[label]) for label, method in METHODS.items()],
        [Column(f"against {label}", partial(duel, opponent=opponent)) for label, opponent in METHODS.items()],
        note="Of the seven measures PPL, KLD, MSJ-3, SB-3, Dist-3, Rep and Uniq, as won-lost. The paper prints one of "
        "the two directions, and does not say which n-grams it uses; with trigrams, its Table 2 gives all results.",
        wide=True,
    ),
    "f2-10": Experiment(
        "Choi et al. 2020, Table 10 (a): texts drawn from more or fewer of the most probable tokens (WikiText-103)",
        _methods(*SAMPLED.values()),
        [PPL, *(replace(column, label=f"top-{k} {column.label}") for k in SAMPLED for column in text_columns(k))],
        note="Table 1's numbers where k is 3. Those of UL-token+seq are doubtful: in this row of the copy at hand, "
        "many cells have two numbers, of which the second is taken; one cell at top-20 is unreadable and left out.",
    ),
    "f2-texts": _sample_table(
        "appendix: more generated texts", 4, {"MLE": "6.0 4.4 4.6 3.4", "F²-Softmax": "8.9 12.3 6.0 11.1"}
    ),
    "f2-figure-2": Experiment(
        "Choi et al. 2020, Figure 2: the share of frequent and rare tokens in the texts (WikiText-103)",
        list(METHODS.values()),
        pictures=[picture("token-shares", "token_shares", partial(texts, topk=TOPK))],
    ),
    "f2-figure-3": Experiment(
        "Choi et al. 2020, Figure 3: the number of classes, and how tokens are assigned to them",
        [
            METHODS["MLE"],
            Method("MefMax", F2, decoding="decoupled"),
            *(Method(model.name.removeprefix("f2-"), model, decoding="decoupled") for model in SWEPT),
        ],
        [PPL, *ABLATED[1:3]],
        [picture("class-sweep", "class_sweep", partial(texts, topk=TOPK))],
        note=f"{LYRICS} The paper has a picture only.",
    ),
}
