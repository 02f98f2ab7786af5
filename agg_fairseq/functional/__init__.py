"""Losses and gates as plain functions of tensors: no state, no fairseq."""

from .agg import agg_gates, rare_tokens
from .agps import agps_gates, tokens_from_rank
from .cosine_regularizer import cosine_regularizer
from .face import face_weights
from .freezing import freezing_gates
from .gated_cross_entropy import CrossEntropyOutput, gated_cross_entropy
from .gates import Gates
from .naive import gate_gradient, naive_gated_cross_entropy
from .unlikelihood import Candidates, Unlikelihood, given_tokens, previous_tokens, repeated_ngrams

__all__ = [
    "Candidates",
    "CrossEntropyOutput",
    "Gates",
    "Unlikelihood",
    "agg_gates",
    "agps_gates",
    "cosine_regularizer",
    "face_weights",
    "freezing_gates",
    "gate_gradient",
    "gated_cross_entropy",
    "given_tokens",
    "naive_gated_cross_entropy",
    "previous_tokens",
    "rare_tokens",
    "repeated_ngrams",
    "tokens_from_rank",
]
