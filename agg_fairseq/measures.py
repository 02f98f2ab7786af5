"""The columns of all tables: unit, digits, meaning, and which direction is better, each declared once."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

HIGHER, LOWER, LIKE_HUMAN = "higher is better", "lower is better", "nearer to human"
ZERO, ONE = "nearer to 0 is better", "nearer to 1 is better"


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Args:
        title: as the table has it.
        unit: "nats", "tokens", "%", …; empty for a pure number or a text.
        digits: decimals that the table shows of a float; a count, which is an int, is shown whole.
    """

    title: str
    unit: str = ""
    digits: int = 2


class Measure(NamedTuple):
    """A measure, which may have several columns, such as one for each frequency group."""

    name: str  # unique; where the columns have no other title, their title
    titles: str  # pattern of the titles of its columns
    better: str = ""  # one of the directions above; empty if no direction is better
    digits: int = 2
    unit: str = ""
    relative: bool = False  # is a change given as a percentage of the other value?
    meaning: str = ""

    def distance(self, human: float | None = None) -> Callable[[float], float] | None:
        """The distance of a value from the ideal, to compare two values by; None if no direction is better.

        Args:
            human: the value of the human texts, for measures that should be near to it.
        """
        if self.better == LIKE_HUMAN:
            return None if human is None else lambda value: abs(value - human)
        distances: dict[str, Callable[[float], float]] = {
            HIGHER: lambda value: -value, LOWER: lambda value: value, ZERO: abs, ONE: lambda value: abs(value - 1),
        }  # fmt: skip
        return distances.get(self.better)


_GROUP = "(frequent|medium|rare|total)"
SPEARMAN = "Spearman × 100"  # the unit of columns of word similarity, whose titles are the names of data sets

# fmt: off
MEASURES = (
    Measure("PPL", f"PPL {_GROUP}", LOWER, relative=True, meaning=
        "Perplexity: exp of the mean negative log-likelihood (in nats) of the targets in the group. A perplexity of "
        "100 means that the model is as uncertain as if it chose among 100 equally probable tokens."),
    Measure("PPL group", f"PPL group {_GROUP}", LOWER, relative=True, meaning=
        "exp of the mean −log P(g), with P(g) the probability of all tokens of the target's group: does the model "
        "expect the right group? A constant on the logits of rare tokens changes it, and with it their perplexity."),
    Measure("PPL within", f"PPL within {_GROUP}", LOWER, relative=True, meaning=
        "Perplexity of the target among the tokens of its group: does the model know which token of the group comes? "
        "PPL = PPL group × PPL within. No constant on the logits of a group changes it."),
    Measure("calibrated PPL", f"calibrated PPL {_GROUP}", LOWER, relative=True, meaning=
        "Perplexity with one constant per group added to the logits, fitted on another split."),
    Measure("Uniq (predictions)", f"Uniq {_GROUP}", HIGHER, digits=0, unit="tokens", relative=True, meaning=
        "Number of different tokens that the model predicts with the highest probability at some position of the "
        "split; in the column human, the number of different targets."),
    Measure("E/O rare", "(calibrated )?E/O rare", ONE, meaning=
        "Expected over observed: the sum of the probabilities that rare tokens get at all positions, divided by the "
        "number of rare targets. Above 1, the model expects rare tokens too often, at the expense of all others."),
    Measure("I(W)", rf"I\(W\) {_GROUP}", HIGHER, digits=3, meaning=
        "Isotropy of the embeddings: min Z / max Z of Z(a) = Σ exp(w · a) over the eigenvectors a of WᵀW. 1 is "
        "isotropic. It depends on the mean row and on the scale of W."),
    Measure("I(W) ±", r"I\(W\) ±", HIGHER, digits=3, meaning=
        "I(W) with both directions of each eigenvector, so that it does not depend on the linear-algebra library."),
    Measure("I(W−μ)", rf"I\(W−μ\)( {_GROUP})?", HIGHER, digits=3, meaning=
        "Isotropy after the mean row μ has been subtracted from each row, which changes no probability of an untied "
        "output embedding. It still depends on the scale of W."),
    Measure("S(W)", r"S\(W\)", ZERO, digits=3, meaning=
        "Mean cosine between two embeddings: 0 is isotropic, 1 is a single direction."),
    Measure("S(W−μ)", r"S\(W−μ\)", ZERO, digits=3, meaning=
        "Mean cosine after the mean row μ has been subtracted from each row."),
    Measure("mean share", "mean share", LOWER, digits=3, meaning=
        "Length of the mean row as a share of the mean length of the rows. If it is near 1, I(W) and S(W) mostly "
        "measure the mean row."),
    Measure("IsoScore", f"IsoScore( {_GROUP})?", HIGHER, digits=3, meaning=
        "Share of the dimensions that the embeddings use evenly (Rudman et al. 2022), in [0, 1]. Neither a shift of "
        "all rows nor their scale changes it. Of the measures of geometry, trust this one first."),
    Measure("cos(rare, frequent)", r"cos\(rare, frequent\)", digits=3, meaning=
        "Mean cosine between a rare and a frequent embedding. If it is far below S(W), the two groups point in "
        "different directions."),
    Measure("singular values", "σ2|σ10|median σ|smallest σ", HIGHER, digits=3, meaning=
        "Singular values of W divided by the largest: the second, the tenth, the median and the smallest."),
    Measure("least β₂", "least β₂ of Adam", digits=6, meaning=
        "1 − 0.2/N for types that occur once in N updates: from this β₂ on, Adam pushes them away from the contexts "
        "of other tokens at most 1.11 times as strongly as it pulls them to their own."),
    Measure("KLD", "KLD", LOWER, unit="nats", meaning=
        "Kullback–Leibler divergence of the distribution of tokens in the texts from that in the human texts, in "
        "nats."),
    Measure("MSJ", r"MSJ-\d", HIGHER, digits=1, unit="%", meaning=
        "MS-Jaccard in percent: how many n-grams, up to the given order, the texts share with the human texts."),
    Measure("SB", r"SB-\d", LIKE_HUMAN, digits=1, unit="%", meaning=
        "Self-BLEU in percent: how similar each text is to the others. If it is far above that of the human texts, "
        "the texts repeat each other."),
    Measure("Dist", r"Dist-\d", LIKE_HUMAN, digits=1, unit="%", meaning=
        "Distinct n-grams of a text as a percentage of its tokens, averaged."),
    Measure("Rep", r"Rep \(%\)", LIKE_HUMAN, unit="%", meaning=
        "Percentage of texts that end in a repeated phrase."),
    Measure("Uniq (texts)", "Uniq", LIKE_HUMAN, digits=0, unit="tokens", relative=True, meaning=
        "Number of different tokens in all generated texts."),
    Measure("shares", r"(frequent|medium|rare|very rare) \(%\)", LIKE_HUMAN, digits=1, unit="%", meaning=
        "Percentage of tokens in the texts that are among those that make up the top 40%, next 30%, next 20% and last "
        "10% of the training text."),
    Measure("distance to unused tokens", "threshold|norm|distance", digits=3, meaning=
        "1 minus the cosine of a row and the sum of the rows of unused tokens; or the norm of an input row."),
    Measure("BLEU", "BLEU", HIGHER, meaning=
        "Tokenized BLEU with compounds split, as in Vaswani et al. (2017)."),
    Measure("sacreBLEU", "sacreBLEU", HIGHER, meaning=
        "BLEU of plain text by sacreBLEU, with its standard tokenizer."),
    Measure("BP", "(sacreBLEU )?BP", digits=3, meaning=
        "Brevity penalty of BLEU: below 1 if the translations are shorter."),
    Measure("ratio", "(sacreBLEU )?ratio", digits=3, meaning=
        "Length of the translations as a share of the length of the references."),
    Measure("sentences", "sentences", digits=0, meaning=
        "Number of sentences."),
    Measure(SPEARMAN, re.escape(SPEARMAN), HIGHER, unit=SPEARMAN, meaning=
        "Rank correlation between cosines of embeddings and human scores of pairs of words, times 100. The last "
        "columns say how many pairs were found in the vocabulary."),
    Measure("AlignSim", f"AlignSim {_GROUP}", HIGHER, digits=4, meaning=
        "Similarity of the embeddings of words that are translations of each other. Compare it with the column "
        "orthogonal, the score of embeddings without any information."),
)
# fmt: on


def measure_of(column: Column) -> Measure | None:
    """The measure of a column: of its unit for word similarity, else of its title; None if it is not known."""
    known = SPEARMAN if column.unit == SPEARMAN else column.title
    return next((measure for measure in MEASURES if re.fullmatch(measure.titles, known)), None)


def column(title: str, unit: str = "") -> Column:
    """The column of a measure, with its unit and digits; of no known measure, a column of texts or whole numbers."""
    measure = measure_of(Column(title, unit))
    return Column(title, unit) if measure is None else Column(title, measure.unit, measure.digits)
