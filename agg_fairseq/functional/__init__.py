"""Losses, gates and frequency classes as pure functions of tensors. Nothing here needs fairseq."""

from .agg import agg_gates, rare_tokens
from .agps import agps_gates, tokens_from_rank
from .centering import center_rows_, mean_row_penalty
from .cosine_regularizer import cosine_regularizer
from .decoupled import choose_class, decoupled_log_prob
from .dispersion import sliced_dispersion
from .factorized_softmax import FactorizedOutput, factorized_cross_entropy, joint_log_prob
from .frequency_classes import equal_frequency, equal_token, mean_efficiency, mefmax
from .gated_cross_entropy import CrossEntropyOutput, face_weights, gated_cross_entropy
from .gates import Gates, freezing_gates
from .isoscore_penalty import isoscore_penalty
from .log_unigram import log_unigram
from .naive import gate_gradient, naive_gated_cross_entropy
from .token_classes import TokenClasses
from .unlikelihood import Candidates, Unlikelihood, given_tokens, previous_tokens, repeated_ngrams

__all__ = [
    "Candidates",
    "CrossEntropyOutput",
    "FactorizedOutput",
    "Gates",
    "TokenClasses",
    "Unlikelihood",
    "agg_gates",
    "agps_gates",
    "center_rows_",
    "choose_class",
    "cosine_regularizer",
    "decoupled_log_prob",
    "equal_frequency",
    "equal_token",
    "face_weights",
    "factorized_cross_entropy",
    "freezing_gates",
    "gate_gradient",
    "gated_cross_entropy",
    "given_tokens",
    "isoscore_penalty",
    "joint_log_prob",
    "log_unigram",
    "mean_efficiency",
    "mean_row_penalty",
    "mefmax",
    "naive_gated_cross_entropy",
    "previous_tokens",
    "rare_tokens",
    "repeated_ngrams",
    "sliced_dispersion",
    "tokens_from_rank",
]
