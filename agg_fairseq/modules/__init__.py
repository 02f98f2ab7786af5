"""Modules with state, in plain PyTorch: they work without fairseq."""

from .frozen_rows import FrozenRows
from .token_counter import TokenCounter
from .unigram_linear import UnigramLinear

__all__ = ["FrozenRows", "TokenCounter", "UnigramLinear"]
