"""Losses and gates as pure functions of tensors. Nothing here needs fairseq.

Where a function checks the range of an argument, it raises ValueError.
"""

from .adam_memory import forgetting, forgotten
from .cosine_regularizer import cosine_regularizer
from .counts import log_unigram, whole_counts
from .gated_cross_entropy import CrossEntropyOutput, gated_cross_entropy
from .gates import Gates, agg_gates, agps_gates, freezing_gates
from .naive import gate_gradient, naive_gated_cross_entropy
from .rare import rare_tokens, rarest, tokens_from_rank
from .unlikelihood import Candidates, given_tokens, previous_tokens, repeated_ngrams

__all__ = [
    "gated_cross_entropy", "CrossEntropyOutput", "Gates", "naive_gated_cross_entropy", "gate_gradient",
    "rarest", "rare_tokens", "agg_gates", "tokens_from_rank", "agps_gates", "freezing_gates",
    "Candidates", "previous_tokens", "given_tokens", "repeated_ngrams",
    "cosine_regularizer", "whole_counts", "log_unigram", "forgotten", "forgetting",
]  # fmt: skip
