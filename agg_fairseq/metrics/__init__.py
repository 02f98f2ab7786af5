"""The papers' measures as pure functions of tensors and of texts. Nothing here needs fairseq."""

from .align_sim import TEMPERATURE, LinkCounts, align_sim, group_means, orthogonal_align_sim
from .bleu import Bleu, corpus_bleu, split_compounds, tokenized_bleu
from .groups import (
    FrequencyGroups,
    frequency_groups,
    frequency_mass_groups,
    group_shares,
    occurrence_groups,
    relative_frequency_groups,
)
from .isotropy import (
    Embeddings,
    Geometry,
    geometry,
    isoscore,
    isotropy,
    mean_cosine,
    mean_cross_cosine,
    mean_inner_product,
    mean_row,
)
from .next_token import NextTokenStatistics
from .texts import distinct, kl_divergence, ms_jaccard, repetition, self_bleu, unique_tokens
from .words import nearest_neighbors, word_similarity, word_vectors

__all__ = [
    "FrequencyGroups", "frequency_groups", "relative_frequency_groups", "frequency_mass_groups",
    "occurrence_groups", "group_shares",
    "NextTokenStatistics",
    "Embeddings", "Geometry", "geometry", "isoscore", "isotropy", "mean_cosine", "mean_cross_cosine",
    "mean_inner_product", "mean_row",
    "nearest_neighbors", "word_similarity", "word_vectors",
    "LinkCounts", "align_sim", "orthogonal_align_sim", "group_means", "TEMPERATURE",
    "distinct", "repetition", "self_bleu", "unique_tokens", "kl_divergence", "ms_jaccard",
    "Bleu", "corpus_bleu", "tokenized_bleu", "split_compounds",
]  # fmt: skip
