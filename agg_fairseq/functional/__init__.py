"""Losses and gates as pure functions of tensors. Nothing here needs fairseq."""

from .agg import agg_gates, rare_tokens
from .agps import agps_gates, tokens_from_rank
from .centering import center_rows_, mean_row_penalty
from .cosine_regularizer import cosine_regularizer
from .gated_cross_entropy import CrossEntropyOutput, face_weights, gated_cross_entropy
from .gates import Gates, freezing_gates
from .log_unigram import log_unigram
from .naive import gate_gradient, naive_gated_cross_entropy
from .unlikelihood import Candidates, Unlikelihood, given_tokens, previous_tokens, repeated_ngrams
