"""Losses and gates as plain functions of tensors: no state, no fairseq."""

from .agg import agg_gates, rare_tokens
from .gated_cross_entropy import CrossEntropyOutput, Gates, gated_cross_entropy
from .naive import gate_gradient, naive_gated_cross_entropy

__all__ = [
    "CrossEntropyOutput",
    "Gates",
    "agg_gates",
    "gate_gradient",
    "gated_cross_entropy",
    "naive_gated_cross_entropy",
    "rare_tokens",
]
