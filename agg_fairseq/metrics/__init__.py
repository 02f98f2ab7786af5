"""The papers' measures: plain functions of tensors and of texts, no fairseq."""

from .diversity import distinct, repetition, unique_tokens
from .groups import FrequencyGroups, frequency_groups, relative_frequency_groups
from .isotropy import isotropy, mean_cosine, mean_cosine_between, principal_projection, singular_values
from .likeness import kl_divergence, ms_jaccard
from .mass_groups import frequency_mass_groups, group_shares
from .next_token import NextTokenStatistics
from .self_bleu import self_bleu

__all__ = [
    "FrequencyGroups",
    "NextTokenStatistics",
    "distinct",
    "frequency_groups",
    "frequency_mass_groups",
    "group_shares",
    "isotropy",
    "kl_divergence",
    "mean_cosine",
    "mean_cosine_between",
    "ms_jaccard",
    "principal_projection",
    "relative_frequency_groups",
    "repetition",
    "self_bleu",
    "singular_values",
    "unique_tokens",
]
