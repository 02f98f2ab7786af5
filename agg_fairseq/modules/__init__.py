"""Modules with state, in plain PyTorch: they work without fairseq."""

from .agg_state import AggState
from .agps_state import AgpsState
from .frozen_rows import FrozenRows
from .token_counter import TokenCounter
from .unigram_linear import UnigramLinear
