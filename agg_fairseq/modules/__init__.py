"""Modules with state, in plain PyTorch: they work without fairseq."""

from .agg_state import AggState as AggState
from .agps_state import AgpsState as AgpsState
from .token_counter import TokenCounter as TokenCounter
from .unigram_linear import UnigramLinear as UnigramLinear
