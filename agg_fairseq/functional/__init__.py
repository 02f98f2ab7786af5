"""Losses and gates as pure functions of tensors. Nothing here needs fairseq.

Where a function checks the range of an argument, it raises ValueError.
"""

from .adam_memory import forgetting, forgotten
from .candidates import Candidates, previous_tokens, repeated_ngrams
from .chunks import Chunk, Loss, Values, chunked
from .cosine_regularizer import cosine_regularizer
from .gated_linear import ReplacedLinear, gated_linear
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
from .losses import SmoothedLikelihood, adversarial_shift, label_smoothed_nll, unlikelihood
from .naive import NaiveAgg, gate_gradient, naive_chunked, naive_gated_cross_entropy
from .training_loss import TERMS, Average, LossOutput, Term, TrainingLoss

__all__ = [
    "gated_linear", "ReplacedLinear", "chunked", "Chunk", "Loss", "Values",
    "naive_gated_cross_entropy", "NaiveAgg", "naive_chunked",
    "SmoothedLikelihood", "label_smoothed_nll", "unlikelihood", "adversarial_shift",
    "TrainingLoss", "LossOutput", "Average", "Term", "TERMS",
    "Gates", "gate_gradient", "agg_gates", "agps_gates", "freezing_gates",
    "rarest", "rare_tokens", "tokens_from_rank",
    "Candidates", "previous_tokens", "repeated_ngrams",
    "cosine_regularizer", "whole_counts", "log_unigram", "forgotten", "forgetting",
]  # fmt: skip
