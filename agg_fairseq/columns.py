"""The columns of results: title, digits, direction and meaning of each metric, declared once."""

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Metric", "METRICS", "COMPARED"]

HIGHER, LOWER, LIKE_HUMAN = "higher is better", "lower is better", "nearer to human"
ZERO, ONE = "nearer to 0 is better", "nearer to 1 is better"


@dataclass(frozen=True)
class Metric:
    """A number, or a number for each key, such as a frequency group or the order of n-grams.

    Args:
        title: of its columns; `{}` stands for the key.
        better: one of the directions above; empty if no direction is better.
        digits: decimals of a float in tables.
        relative: whether changes are in percent of the other value.
        scale: factor of the values in tables, such as 100 for percent.
        meaning: text of the glossary.
    """

    title: str
    better: str = ""
    digits: int = 2
    relative: bool = False
    scale: int = 1
    meaning: str = ""

    @property
    def explanation(self) -> str:
        """Title, meaning and direction, in lines."""
        text = f"{self.title.format('…')}: {self.meaning} {self.better.capitalize()}"
        return textwrap.fill(text, 110, subsequent_indent="    ")

    def distance(self, human: float | None = None) -> Callable[[float], float] | None:
        """The distance of a value from the ideal; None if no direction is better."""
        if self.better in (HIGHER, LOWER):
            return lambda value: value if self.better == LOWER else -value
        ideal = {ZERO: 0, ONE: 1, LIKE_HUMAN: human}.get(self.better)
        return None if ideal is None else lambda value: abs(value - ideal)


# fmt: off
METRICS = {
    # next tokens, by frequency group
    "perplexity": Metric("PPL {}", LOWER, relative=True, meaning=
        "exp of the mean negative log-likelihood (in nats) of the targets in the group: 100 means "
        "that the model is as uncertain as if it chose among 100 equally probable tokens."),
    "group_perplexity": Metric("PPL group {}", LOWER, relative=True, meaning=
        "exp of the mean −log P(g), with P(g) the probability of all tokens of the target's group. "
        "A constant on the logits of rare tokens changes it, and with it their perplexity."),
    "within_perplexity": Metric("PPL within {}", LOWER, relative=True, meaning=
        "Perplexity of the target among the tokens of its group. PPL = PPL group × PPL within. No "
        "constant on the logits of a group changes it."),
    "perplexity_per": Metric("PPL per {}", LOWER, digits=3, relative=True, meaning=
        "exp of the negative log-likelihood (in nats) of the text, divided by its words (between "
        "white space) or bytes (in UTF-8): models of different vocabularies can be compared by it. "
        "Tokens that are not scored, the first of each block, count as the mean of the others."),
    "calibrated_perplexity": Metric("calibrated PPL {}", LOWER, relative=True, meaning=
        "Perplexity with one constant per group added to the logits, fitted on another split."),
    "unique_predictions": Metric("Uniq {}", HIGHER, digits=0, relative=True, meaning=
        "Number of different tokens that are the most probable one at some position; human: of "
        "different targets."),
    "expected_over_observed": Metric("E/O {}", ONE, meaning=
        "Expected over observed: the sum of the probabilities of the group's tokens at all "
        "positions, divided by the number of targets in the group. Above 1, the model expects them "
        "too often."),
    "calibrated_expected_over_observed": Metric("calibrated E/O {}", ONE, meaning=
        "E/O with one constant per group added to the logits, fitted on another split."),
    # embeddings, by frequency group
    "isotropy": Metric("I(W) {}", HIGHER, digits=3, meaning=
        "min Z / max Z of Z(a) = Σ exp(w · a) over the eigenvectors a of WᵀW. 1 is isotropic. It "
        "depends on the mean row and on the scale of W."),
    "isotropy_both_signs": Metric("I(W) ±", HIGHER, digits=3, meaning=
        "I(W) with both signs of each eigenvector, which does not depend on the linear-algebra "
        "library."),
    "isotropy_centered": Metric("I(W−μ) {}", HIGHER, digits=3, meaning=
        "I(W) after the mean row μ is subtracted, which changes no probability of an untied W."),
    "mean_cosine": Metric("S(W) {}", ZERO, digits=3, meaning=
        "Mean cosine between two embeddings: 0 is isotropic, 1 is a single direction."),
    "mean_cosine_centered": Metric("S(W−μ) {}", ZERO, digits=3, meaning=
        "S(W) after the mean row μ is subtracted."),
    "mean_share": Metric("mean share {}", LOWER, digits=3, meaning=
        "Length of the mean row as a share of the mean length of the rows. Near 1, I(W) and S(W) "
        "mostly measure it."),
    "isoscore": Metric("IsoScore {}", HIGHER, digits=3, meaning=
        "Share of the dimensions that the embeddings use evenly (Rudman et al. 2022), in [0, 1]. "
        "Neither a shift of all rows nor their scale changes it."),
    "rare_frequent_cosine": Metric("cos(rare, frequent)", digits=3, meaning=
        "Mean cosine between a rare and a frequent embedding. If it is far below S(W), the groups "
        "point apart."),
    "singular_value": Metric("{}", HIGHER, digits=3, meaning=
        "Singular values of W divided by the largest: the second, the tenth, the median and the "
        "smallest."),
    "moved": Metric("moved {}", digits=3, meaning=
        "‖W − W₀‖ / ‖W₀‖ over the rows of the group, with W₀ of another model, such as the one "
        "that was fine-tuned."),
    # words, by data set; and aligned words, by frequency group
    "spearman": Metric("{}", HIGHER, scale=100, meaning=
        "Rank correlation between cosines of embeddings and human scores of pairs of words, times "
        "100."),
    "align_sim": Metric("AlignSim {}", HIGHER, digits=4, meaning=
        "Similarity of the embeddings of words that were aligned; compare with the row orthogonal, "
        "of embeddings without any information."),
    "neighbor": Metric("{}"),  # by rank, a text
    # generated texts; by the order of n-grams, or by part of the training text
    "kld": Metric("KLD", LOWER, meaning=
        "Kullback–Leibler divergence of the distribution of tokens from that in the human texts, "
        "in nats."),
    "ms_jaccard": Metric("MSJ-{}", HIGHER, digits=1, scale=100, meaning=
        "MS-Jaccard in percent: how many n-grams, up to the given order, the texts share with the "
        "human texts."),
    "self_bleu": Metric("SB-{}", LIKE_HUMAN, digits=1, scale=100, meaning=
        "Self-BLEU in percent: how similar each text is to the others. Far above human, the texts "
        "repeat each other."),
    "distinct": Metric("Dist-{}", LIKE_HUMAN, digits=1, scale=100, meaning=
        "Distinct n-grams of a text as a percentage of its tokens, averaged."),
    "repetition": Metric("Rep (%)", LIKE_HUMAN, scale=100, meaning=
        "Percentage of texts that end in a repeated phrase."),
    "unique_tokens": Metric("Uniq", LIKE_HUMAN, digits=0, relative=True, meaning=
        "Number of different tokens in all generated texts."),
    "token_share": Metric("{} (%)", LIKE_HUMAN, digits=1, scale=100, meaning=
        "Percentage of tokens in the texts that are among those that make up the top 40%, next "
        "30%, next 20% and last 10% of the training text."),
    # translations
    "bleu": Metric("BLEU", HIGHER, meaning=
        "Tokenized BLEU with compounds split, as in Vaswani et al. (2017)."),
    "bleu_brevity_penalty": Metric("BP", digits=3, meaning=
        "Brevity penalty: below 1 if the translations are shorter."),
    "bleu_ratio": Metric("ratio", digits=3, meaning=
        "Length of the translations by that of the references."),
    "sacrebleu": Metric("sacreBLEU", HIGHER, meaning="BLEU of plain text by sacreBLEU."),
    "sacrebleu_brevity_penalty": Metric("sacreBLEU BP", digits=3, meaning=
        "Brevity penalty of sacreBLEU."),
    "sacrebleu_ratio": Metric("sacreBLEU ratio", digits=3, meaning="The same ratio in plain text."),
    "sentences": Metric("sentences", meaning="Number of sentences."),
    # a text before training, by split
    "types": Metric("types"),
    "fewest": Metric("fewest"),
    "most": Metric("most"),
    "target_share": Metric("{} (%)", scale=100),
    "updates_per_occurrence": Metric("N"),
    "change_by_beta2": Metric("PPL with 0.999 (%)", scale=100, digits=1),
    "pushes_over_pulls": Metric("pushes/pulls {}"),
    # what commands wrote
    "texts": Metric("texts"),
    "generated_tokens": Metric("generated"),
    "unused_tokens": Metric("unused"),
    "sentence_pairs": Metric("sentence pairs"),
    "updates": Metric("updates"),
}  # fmt: on
"""All metrics by their names in a `Result` and in JSON."""

Columns = Mapping[str, Sequence[str]]
"""Columns of a table: by the name of a metric its keys, or `[""]` if it has none."""
GROUPS = ("frequent", "medium", "rare")  # those of `names`
WITH_TOTAL = (*GROUPS, "total")
NEXT_TOKENS: Columns = {
    **dict.fromkeys(
        ("perplexity", "group_perplexity", "within_perplexity", "unique_predictions", "isotropy"),
        WITH_TOTAL,
    ),
    **dict.fromkeys(("mean_cosine", "isotropy_centered", "mean_share", "isoscore"), ("total",)),
    "expected_over_observed": ("rare",),
}
PER_TEXT: Columns = {"perplexity_per": ("word", "byte")}
CALIBRATED: Columns = {
    "calibrated_perplexity": ("total", "rare"),
    "calibrated_expected_over_observed": ("rare",),
}
MOVED: Columns = {"moved": GROUPS}
"""Columns of `evaluation.perplexity`; PER_TEXT, of a `PlainText`; CALIBRATED, if offsets are fitted;
MOVED, with a model that others began as."""
EMBEDDINGS: Columns = {
    **dict.fromkeys(("isotropy", "isotropy_centered", "isoscore"), WITH_TOTAL),
    **dict.fromkeys(("mean_cosine", "mean_cosine_centered", "mean_share"), ("total",)),
    **dict.fromkeys(("isotropy_both_signs", "rare_frequent_cosine"), ("",)),
    "singular_value": ("σ2", "σ10", "median σ", "smallest σ"),
}
"""Columns of `evaluation.isotropy`."""
GENERATED_TEXTS: Columns = {
    "kld": ("",),
    **dict.fromkeys(("ms_jaccard", "self_bleu", "distinct"), ("1", "2", "3")),
    **dict.fromkeys(("repetition", "unique_tokens"), ("",)),
}
"""Columns of `evaluation.text_metrics`."""
TRANSLATIONS: Columns = dict.fromkeys(
    ("bleu", "bleu_brevity_penalty", "bleu_ratio", "sacrebleu", "sacrebleu_brevity_penalty",
     "sacrebleu_ratio", "sentences"), ("",)
)  # fmt: skip
"""Columns of `evaluation.bleu`."""
CALIBRATION: Columns = {"perplexity": WITH_TOTAL, "expected_over_observed": ("rare",)}
"""Columns of `evaluation.calibrate`."""
# Most others are changed by a constant on the logits of a group or by a shift of all embeddings.
COMPARED: Columns = {
    "perplexity": ("total",),
    "within_perplexity": GROUPS,
    "expected_over_observed": ("rare",),
    "isoscore": ("total",),
    **CALIBRATED,
    "calibrated_perplexity": ("total",),
}
"""Columns by which models are compared."""


def is_marked(metric: str, key: str) -> bool:
    """Whether a report marks a better value of a column: of next tokens and embeddings only total,
    within and calibrated perplexities, since others change without any gain."""
    if metric in NEXT_TOKENS or metric in EMBEDDINGS:
        return metric == "within_perplexity" or (metric, key) == ("perplexity", "total")
    return True


def add_groups(columns: Columns, names: Sequence[str]) -> Columns:
    """The columns with the groups `names` (two or more) in place of frequent, medium and rare; with
    all of these, where a measure has all three."""
    rarest, found = names[:3][-1], {}
    for metric, keys in columns.items():
        found[metric] = [rarest if key == "rare" else key for key in keys]
        if keys[:3] == GROUPS:
            found[metric][:3] = names
    return found


def column_titles(columns: Columns) -> dict[tuple[str, str], str]:
    """Titles by metric and key; `total` is not named if a metric has no other key."""
    titles = {}
    for metric, keys in columns.items():
        for key in keys:
            shown = "" if list(keys) == ["total"] else key
            titles[metric, key] = METRICS[metric].title.format(shown).strip()
    return titles
