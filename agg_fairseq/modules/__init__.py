"""Modules with state, in plain PyTorch: they work without fairseq."""

from .token_counter import TokenCounter as TokenCounter
from .unigram_linear import UnigramLinear as UnigramLinear
