"""What is measured: title, digits, meaning, and which direction is better, declared once for each measure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Measure", "MEASURES", "COMPARED"]

HIGHER, LOWER, LIKE_HUMAN = "higher is better", "lower is better", "nearer to human"
ZERO, ONE = "nearer to 0 is better", "nearer to 1 is better"


@dataclass(frozen=True)
class Measure:
    """A measure: a number, or a number for each key, such as a frequency group or the order of n-grams.

    Args:
        name: unique; the name of its values in a `Result` and in JSON.
        title: of its columns in tables; `{}` stands for the key.
        better: one of the directions above; empty if no direction is better.
        digits: decimals that tables show of a float; a whole number has none.
        relative: whether tables give changes in percent of the other value.
        scale: factor of the values in tables, such as 100 for a share that is shown in percent.
        term: heading in the glossary; empty: the title without a key.
        meaning: text of the glossary.
    """

    name: str
    title: str
    better: str = ""
    digits: int = 2
    relative: bool = False
    scale: int = 1
    term: str = ""
    meaning: str = ""

    @property
    def heading(self) -> str:
        """The heading in the glossary."""
        return self.term or self.title.replace("{}", "").strip()

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


# fmt: off
MEASURES = {measure.name: measure for measure in (
    # next tokens, by frequency group
    Measure("perplexity", "PPL {}", LOWER, relative=True, meaning=
        "Perplexity: exp of the mean negative log-likelihood (in nats) of the targets in the group. A perplexity of "
        "100 means that the model is as uncertain as if it chose among 100 equally probable tokens."),
    Measure("group_perplexity", "PPL group {}", LOWER, relative=True, meaning=
        "exp of the mean −log P(g), with P(g) the probability of all tokens of the target's group: does the model "
        "expect the right group? A constant on the logits of rare tokens changes it, and with it their perplexity."),
    Measure("within_perplexity", "PPL within {}", LOWER, relative=True, meaning=
        "Perplexity of the target among the tokens of its group: does the model know which token of the group comes? "
        "PPL = PPL group × PPL within. No constant on the logits of a group changes it."),
    Measure("calibrated_perplexity", "calibrated PPL {}", LOWER, relative=True, meaning=
        "Perplexity with one constant per group added to the logits, fitted on another split."),
    Measure("unique_predictions", "Uniq {}", HIGHER, digits=0, relative=True, term="Uniq (predictions)", meaning=
        "Number of different tokens that the model predicts with the highest probability at some position of the "
        "split; in the column human, the number of different targets."),
    Measure("expected_over_observed", "E/O {}", ONE, meaning=
        "Expected over observed: the sum of the probabilities that the tokens of the group get at all positions, "
        "divided by the number of targets in the group. If it is above 1 for rare tokens, the model expects them too "
        "often, at the expense of all others."),
    Measure("calibrated_expected_over_observed", "calibrated E/O {}", ONE, meaning=
        "E/O with one constant per group added to the logits, fitted on another split."),
    # embeddings, by frequency group
    Measure("isotropy", "I(W) {}", HIGHER, digits=3, meaning=
        "Isotropy of the embeddings: min Z / max Z of Z(a) = Σ exp(w · a) over the eigenvectors a of WᵀW. 1 is "
        "isotropic. It depends on the mean row and on the scale of W."),
    Measure("isotropy_both_signs", "I(W) ±", HIGHER, digits=3, meaning=
        "I(W) with both directions of each eigenvector, so that it does not depend on the linear-algebra library."),
    Measure("isotropy_centered", "I(W−μ) {}", HIGHER, digits=3, meaning=
        "Isotropy after the mean row μ has been subtracted from each row, which changes no probability of an untied "
        "output embedding. It still depends on the scale of W."),
    Measure("mean_cosine", "S(W) {}", ZERO, digits=3, meaning=
        "Mean cosine between two embeddings: 0 is isotropic, 1 is a single direction."),
    Measure("mean_cosine_centered", "S(W−μ) {}", ZERO, digits=3, meaning=
        "Mean cosine after the mean row μ has been subtracted from each row."),
    Measure("mean_share", "mean share {}", LOWER, digits=3, meaning=
        "Length of the mean row as a share of the mean length of the rows. If it is near 1, I(W) and S(W) mostly "
        "measure the mean row."),
    Measure("isoscore", "IsoScore {}", HIGHER, digits=3, meaning=
        "Share of the dimensions that the embeddings use evenly (Rudman et al. 2022), in [0, 1]. Neither a shift of "
        "all rows nor their scale changes it. Of the measures of geometry, trust this one first; whether a model "
        "predicts better is said by the perplexities."),
    Measure("rare_frequent_cosine", "cos(rare, frequent)", digits=3, meaning=
        "Mean cosine between a rare and a frequent embedding. If it is far below S(W), the two groups point in "
        "different directions."),
    Measure("singular_value", "{}", HIGHER, digits=3, term="singular values", meaning=
        "Singular values of W divided by the largest: the second, the tenth, the median and the smallest."),
    Measure("moved", "moved {}", digits=3, meaning=
        "How far the output embeddings of the group are from those of another model, such as the one that was "
        "fine-tuned: ‖W − W₀‖ / ‖W₀‖ over the rows of the group."),
    # words, by data set; and aligned words, by frequency group
    Measure("spearman", "{}", HIGHER, scale=100, term="Spearman × 100", meaning=
        "Rank correlation between cosines of embeddings and human scores of pairs of words, times 100. The last "
        "columns say how many pairs were found in the vocabulary."),
    Measure("align_sim", "AlignSim {}", HIGHER, digits=4, meaning=
        "Similarity of the embeddings of words that are translations of each other. Compare it with the column "
        "orthogonal, the score of embeddings without any information."),
    Measure("neighbor", "{}"),  # by rank, a text
    # generated texts; by the order of n-grams, or by part of the training text
    Measure("kld", "KLD", LOWER, meaning=
        "Kullback–Leibler divergence of the distribution of tokens in the texts from that in the human texts, in "
        "nats."),
    Measure("ms_jaccard", "MSJ-{}", HIGHER, digits=1, scale=100, term="MSJ", meaning=
        "MS-Jaccard in percent: how many n-grams, up to the given order, the texts share with the human texts."),
    Measure("self_bleu", "SB-{}", LIKE_HUMAN, digits=1, scale=100, term="SB", meaning=
        "Self-BLEU in percent: how similar each text is to the others. If it is far above that of the human texts, "
        "the texts repeat each other."),
    Measure("distinct", "Dist-{}", LIKE_HUMAN, digits=1, scale=100, term="Dist", meaning=
        "Distinct n-grams of a text as a percentage of its tokens, averaged."),
    Measure("repetition", "Rep (%)", LIKE_HUMAN, scale=100, term="Rep", meaning=
        "Percentage of texts that end in a repeated phrase."),
    Measure("unique_tokens", "Uniq", LIKE_HUMAN, digits=0, relative=True, term="Uniq (texts)", meaning=
        "Number of different tokens in all generated texts."),
    Measure("token_share", "{} (%)", LIKE_HUMAN, digits=1, scale=100, term="shares", meaning=
        "Percentage of tokens in the texts that are among those that make up the top 40%, next 30%, next 20% and last "
        "10% of the training text."),
    # translations
    Measure("bleu", "BLEU", HIGHER, meaning=
        "Tokenized BLEU with compounds split, as in Vaswani et al. (2017)."),
    Measure("bleu_brevity_penalty", "BP", digits=3, meaning=
        "Brevity penalty of BLEU: below 1 if the translations are shorter."),
    Measure("bleu_ratio", "ratio", digits=3, meaning=
        "Length of the translations as a share of the length of the references."),
    Measure("sacrebleu", "sacreBLEU", HIGHER, meaning=
        "BLEU of plain text by sacreBLEU, with its standard tokenizer."),
    Measure("sacrebleu_brevity_penalty", "sacreBLEU BP", digits=3, meaning="Brevity penalty of sacreBLEU."),
    Measure("sacrebleu_ratio", "sacreBLEU ratio", digits=3, meaning=
        "Length of the plain translations as a share of the length of the references."),
    Measure("sentences", "sentences", meaning="Number of sentences."),
    # a text before training, by split
    Measure("types", "types"),
    Measure("fewest", "fewest"),
    Measure("most", "most"),
    Measure("target_share", "{} (%)", scale=100),
    Measure("updates_per_occurrence", "updates per occurrence {}"),
    Measure("least_beta2", "least β₂ of Adam", digits=6),
    # an optimizer, by frequency group
    Measure("push_to_pull", "1/(1−x) {}"),
    Measure("push_to_pull_measured", "pushes/pulls {}"),
    # under-trained tokens: of a model, and of a token
    Measure("indicator", "indicator"),
    Measure("known_unused", "known unused"),
    Measure("threshold", "threshold", digits=3),
    Measure("threshold_reason", "threshold is"),
    Measure("others", "tokens"),
    Measure("below", "below"),
    Measure("below_share", "below (%)", scale=100),
    Measure("norm", "norm", digits=3),
    Measure("distance", "distance", digits=3),
    Measure("count", "count"),
    Measure("group", "group"),
    # what commands wrote
    Measure("texts", "texts"),
    Measure("generated_tokens", "generated"),
    Measure("unused_tokens", "unused"),
    Measure("sentence_pairs", "sentence pairs"),
    Measure("updates", "updates"),
    Measure("validation_loss", "validation loss", digits=3),
    Measure("kl", "KL (nats)", digits=4),
)}  # fmt: on
"""All measures by their names."""

Columns = Mapping[str, Sequence[str]]
"""Columns of a table: by the name of a measure its keys, or `[""]` if it has none."""
NEXT_TOKENS: Columns = {
    **dict.fromkeys(
        ("perplexity", "group_perplexity", "within_perplexity", "unique_predictions", "isotropy"),
        ("frequent", "medium", "rare", "total"),
    ),
    **dict.fromkeys(("mean_cosine", "isotropy_centered", "mean_share", "isoscore"), ("total",)),
    "expected_over_observed": ("rare",),
}
CALIBRATED: Columns = {"calibrated_perplexity": ("total", "rare"), "calibrated_expected_over_observed": ("rare",)}
MOVED: Columns = {"moved": ("frequent", "medium", "rare")}
"""Columns of `evaluation.perplexity`; CALIBRATED, if offsets are fitted; MOVED, with a model that others began as."""
COMPARED: Columns = {
    "perplexity": ("total",),
    "within_perplexity": ("frequent", "medium", "rare"),
    "expected_over_observed": ("rare",),
    "isoscore": ("total",),
    "calibrated_perplexity": ("total",),
    "calibrated_expected_over_observed": ("rare",),
}
"""Those by which models are compared. The others are changed by a constant on the logits of a group, by a shift of all
embeddings, or are of a kind that only some tables of the papers have."""


def with_groups(columns: Columns, names: Sequence[str]) -> Columns:
    """The columns with three other groups in place of frequent, medium and rare."""
    renamed = dict(zip(("frequent", "medium", "rare"), names, strict=True))
    return {measure: [renamed.get(key, key) for key in keys] for measure, keys in columns.items()}


def column_titles(columns: Columns) -> dict[tuple[str, str], str]:
    """Titles by measure and key; `total` is not named if a measure has no other key."""
    return {
        (measure, key): MEASURES[measure].title.format("" if list(keys) == ["total"] else key).strip()
        for measure, keys in columns.items()
        for key in keys
    }
