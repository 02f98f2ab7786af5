"""Losses and gates as pure functions of tensors. Nothing here needs fairseq.

Where a function checks the range of an argument, it raises ValueError.
"""

from .adam_memory import least_beta2 as least_beta2
from .adam_memory import push_to_pull as push_to_pull
from .agg import agg_gates as agg_gates
from .agg import rare_tokens as rare_tokens
from .agps import agps_gates as agps_gates
from .agps import tokens_from_rank as tokens_from_rank
from .centering import center_rows_ as center_rows_
from .centering import mean_row_penalty as mean_row_penalty
from .cosine_regularizer import cosine_regularizer as cosine_regularizer
from .gated_cross_entropy import CrossEntropyOutput as CrossEntropyOutput
from .gated_cross_entropy import face_weights as face_weights
from .gated_cross_entropy import gated_cross_entropy as gated_cross_entropy
from .gates import Gates as Gates
from .gates import freezing_gates as freezing_gates
from .log_unigram import log_unigram as log_unigram
from .naive import gate_gradient as gate_gradient
from .naive import naive_gated_cross_entropy as naive_gated_cross_entropy
from .unlikelihood import Candidates as Candidates
from .unlikelihood import Unlikelihood as Unlikelihood
from .unlikelihood import given_tokens as given_tokens
from .unlikelihood import previous_tokens as previous_tokens
from .unlikelihood import repeated_ngrams as repeated_ngrams
