"""The papers' measures as pure functions of tensors and of texts. Nothing here needs fairseq."""

from .align_sim import LinkCounts, align_sim, group_means, orthogonal_align_sim
from .bleu import Bleu, corpus_bleu, split_compounds, tokenized_bleu
from .diversity import distinct, repetition, self_bleu, unique_tokens
from .groups import (
    FrequencyGroups,
    frequency_groups,
    frequency_mass_groups,
    group_shares,
    relative_frequency_groups,
)
from .isotropy import (
    Geometry,
    geometry,
    isoscore,
    isotropy,
    mean_cosine,
    mean_cosine_between,
    mean_inner_product,
    mean_row,
    principal_projection,
    singular_values,
)
from .neighbors import nearest_neighbors
from .next_token import NextTokenStatistics
from .ngrams import kl_divergence, ms_jaccard
from .under_trained import unused_distance
from .word_similarity import WordSimilarity, word_similarity, word_vectors

__all__ = [
    "Bleu",
    "FrequencyGroups",
    "Geometry",
    "LinkCounts",
    "NextTokenStatistics",
    "WordSimilarity",
    "align_sim",
    "corpus_bleu",
    "distinct",
    "frequency_groups",
    "frequency_mass_groups",
    "geometry",
    "group_means",
    "group_shares",
    "isoscore",
    "isotropy",
    "kl_divergence",
    "mean_cosine",
    "mean_cosine_between",
    "mean_inner_product",
    "mean_row",
    "ms_jaccard",
    "nearest_neighbors",
    "orthogonal_align_sim",
    "principal_projection",
    "relative_frequency_groups",
    "repetition",
    "self_bleu",
    "singular_values",
    "split_compounds",
    "tokenized_bleu",
    "unique_tokens",
    "unused_distance",
    "word_similarity",
    "word_vectors",
]
