"""What has a state: plain PyTorch, no fairseq."""

from .factorized_softmax import FactorizedSoftmax
from .frozen_rows import FrozenRows
from .token_counter import TokenCounter

__all__ = ["FactorizedSoftmax", "FrozenRows", "TokenCounter"]
