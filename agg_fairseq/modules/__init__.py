"""Modules with state, in plain PyTorch: they work without fairseq."""

from .token_counter import TokenCounter
from .unigram_linear import UnigramLinear

__all__ = ["TokenCounter", "UnigramLinear"]
