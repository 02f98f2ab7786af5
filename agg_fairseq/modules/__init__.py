"""What has a state: plain PyTorch, no fairseq."""

from .frozen_rows import FrozenRows
from .token_counter import TokenCounter

__all__ = ["FrozenRows", "TokenCounter"]
