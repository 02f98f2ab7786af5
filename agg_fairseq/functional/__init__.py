"""Losses and gates as pure functions of tensors. Nothing here needs fairseq.

Where a function checks the range of an argument, it raises ValueError.
"""

from .adam_memory import forgetting, forgotten
from .cosine_regularizer import cosine_regularizer
from .gated_cross_entropy import CrossEntropyOutput, gated_cross_entropy, gated_likelihood
from .gated_linear import gated_linear
from .gates import (
    Gates,
    agg_gates,
    agps_gates,
    freezing_gates,
    rare_tokens,
    rarest,
    tokens_from_rank,
    whole_counts,
)
from .log_unigram import log_unigram
from .naive import gate_gradient, naive_gated_cross_entropy
from .unlikelihood import Candidates, given_tokens, previous_tokens, repeated_ngrams

__all__ = [
    "gated_linear", "gated_cross_entropy", "gated_likelihood", "CrossEntropyOutput", "naive_gated_cross_entropy",
    "Gates", "gate_gradient", "agg_gates", "agps_gates", "freezing_gates",
    "rarest", "rare_tokens", "tokens_from_rank",
    "Candidates", "previous_tokens", "given_tokens", "repeated_ngrams",
    "cosine_regularizer", "whole_counts", "log_unigram", "forgotten", "forgetting",
]  # fmt: skip
