"""Modules with state, in plain PyTorch: they work without fairseq."""

from .factorized_softmax import FactorizedSoftmax
from .frozen_rows import FrozenRows
from .token_counter import TokenCounter
from .unigram_linear import UnigramLinear

__all__ = ["FactorizedSoftmax", "FrozenRows", "TokenCounter", "UnigramLinear"]
