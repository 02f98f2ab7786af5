"""What the measures of a report mean, and which direction is better."""

from __future__ import annotations

import re
from typing import NamedTuple

from ..data.vocabulary import GROUPINGS
from ..result import Column, Result

HIGHER, LOWER, LIKE_HUMAN = "higher is better", "lower is better", "nearer to human"
ZERO, ONE = "nearer to 0 is better", "nearer to 1 is better"


class Measure(NamedTuple):
    """A measure, which may have several columns, such as one for each frequency group."""

    name: str
    """Unique; where the columns have no other title, their title."""
    columns: str
    """Pattern of the titles of its columns, or of their unit."""
    meaning: str
    better: str = ""
    """One of the directions above; empty if no direction is better."""
    relative: bool = False
    """Is a difference given as a percentage of the baseline's value?"""


_GROUP = "(frequent|medium|rare|total)"
MEASURES = (
    Measure(
        "PPL",
        f"PPL {_GROUP}",
        "Perplexity: exp of the mean negative log-likelihood (in nats) of the targets in the group. A perplexity of "
        "100 means that the model is as uncertain as if it chose among 100 equally probable tokens.",
        LOWER,
        relative=True,
    ),
    Measure(
        "Uniq (predictions)",
        f"Uniq {_GROUP}",
        "Number of different tokens that the model predicts with the highest probability at some position of the "
        "split; in the column human, the number of different targets.",
        HIGHER,
        relative=True,
    ),
    Measure(
        "E/O rare",
        "E/O rare",
        "Expected over observed: the sum of the probabilities that rare tokens get at all positions, divided by the "
        "number of rare targets. Above 1, the model expects rare tokens too often, at the expense of all others.",
        ONE,
    ),
    Measure(
        "I(W)",
        rf"I\(W\) {_GROUP}",
        "Isotropy of the embeddings: min Z / max Z of Z(a) = Σ exp(w · a) over the eigenvectors a of WᵀW. 1 is "
        "isotropic. It depends on the mean row and on the scale of W.",
        HIGHER,
    ),
    Measure(
        "I(W) ±",
        r"I\(W\) ±",
        "I(W) with both directions of each eigenvector, so that it does not depend on the linear-algebra library.",
        HIGHER,
    ),
    Measure(
        "I(W−μ)",
        rf"I\(W−μ\)( {_GROUP})?",
        "Isotropy after the mean row μ has been subtracted from each row, which changes no probability of an untied "
        "output embedding. It still depends on the scale of W.",
        HIGHER,
    ),
    Measure("S(W)", r"S\(W\)", "Mean cosine between two embeddings: 0 is isotropic, 1 is a single direction.", ZERO),
    Measure("S(W−μ)", r"S\(W−μ\)", "Mean cosine after the mean row μ has been subtracted from each row.", ZERO),
    Measure(
        "mean share",
        "mean share",
        "Length of the mean row as a share of the mean length of the rows. If it is near 1, I(W) and S(W) mostly "
        "measure the mean row.",
        LOWER,
    ),
    Measure(
        "IsoScore",
        f"IsoScore( {_GROUP})?",
        "Share of the dimensions that the embeddings use evenly (Rudman et al. 2022), in [0, 1]. Neither a shift of "
        "all rows nor their scale changes it. Of the measures of geometry, trust this one first.",
        HIGHER,
    ),
    Measure(
        "cos(rare, frequent)",
        r"cos\(rare, frequent\)",
        "Mean cosine between a rare and a frequent embedding. If it is far below S(W), the two groups point in "
        "different directions.",
    ),
    Measure(
        "singular values",
        "σ2|σ10|median σ|smallest σ",
        "Singular values of W divided by the largest: the second, the tenth, the median and the smallest.",
        HIGHER,
    ),
    Measure(
        "KLD",
        "KLD",
        "Kullback–Leibler divergence of the distribution of tokens in the texts from that in the human texts, in nats.",
        LOWER,
    ),
    Measure(
        "MSJ",
        r"MSJ-\d",
        "MS-Jaccard in percent: how many n-grams, up to the given order, the texts share with the human texts.",
        HIGHER,
    ),
    Measure(
        "SB",
        r"SB-\d",
        "Self-BLEU in percent: how similar each text is to the others. If it is far above that of the human texts, "
        "the texts repeat each other.",
        LIKE_HUMAN,
    ),
    Measure("Dist", r"Dist-\d", "Distinct n-grams of a text as a percentage of its tokens, averaged.", LIKE_HUMAN),
    Measure("Rep", r"Rep \(%\)", "Percentage of texts that end in a repeated phrase.", LIKE_HUMAN),
    Measure("Uniq (texts)", "Uniq", "Number of different tokens in all generated texts.", LIKE_HUMAN, relative=True),
    Measure(
        "shares",
        r"(frequent|medium|rare|very rare) \(%\)",
        "Percentage of tokens in the texts that are among those that make up the top 40%, next 30%, next 20% and last "
        "10% of the training text.",
        LIKE_HUMAN,
    ),
    Measure("BLEU", "BLEU", "Tokenized BLEU with compounds split, as in Vaswani et al. (2017).", HIGHER),
    Measure("sacreBLEU", "sacreBLEU", "BLEU of plain text by sacreBLEU, with its standard tokenizer.", HIGHER),
    Measure("BP", "(sacreBLEU )?BP", "Brevity penalty of BLEU: below 1 if the translations are shorter."),
    Measure("ratio", "(sacreBLEU )?ratio", "Length of the translations as a share of the length of the references."),
    Measure("sentences", "sentences", "Number of sentences."),
    Measure(
        "Spearman × 100",
        "Spearman × 100",
        "Rank correlation between cosines of embeddings and human scores of pairs of words, times 100. The last "
        "columns say how many pairs were found in the vocabulary.",
        HIGHER,
    ),
    Measure(
        "AlignSim",
        f"AlignSim {_GROUP}",
        "Similarity of the embeddings of words that are translations of each other. Compare it with the column "
        "orthogonal, the score of embeddings without any information.",
        HIGHER,
    ),
)

_GROUPINGS = {
    "types": "the first 30%, the next 50% and the last 20% of the vocabulary, ordered by training frequency",
    "frequency": "the tokens that make up at least 1e-5, at least 1e-6 and less than 1e-6 of the training text",
}


def measure_of(column: Column) -> Measure | None:
    """The measure of a column of a result; None if it is not known."""
    for measure in MEASURES:
        if re.fullmatch(measure.columns, column.title) or re.fullmatch(measure.columns, column.unit):
            return measure
    return None


def groups_in_words(result: Result) -> str:
    """What "frequent", "medium" and "rare" mean in a result, as a sentence; empty if it has no such groups."""
    for name, signature in GROUPINGS.items():
        if f"|groups:{signature}" in result.signature:
            return f"Here, frequent, medium and rare tokens are {_GROUPINGS[name]}."
    return ""
