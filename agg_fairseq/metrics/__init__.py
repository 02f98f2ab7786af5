"""The papers' measures: plain functions of tensors, no fairseq."""

from .groups import FrequencyGroups, frequency_groups
from .isotropy import isotropy, mean_cosine, mean_cosine_between, principal_projection, singular_values
from .next_token import NextTokenStatistics

__all__ = [
    "FrequencyGroups",
    "NextTokenStatistics",
    "frequency_groups",
    "isotropy",
    "mean_cosine",
    "mean_cosine_between",
    "principal_projection",
    "singular_values",
]
