"""Modules with state: plain PyTorch, no fairseq."""

from .token_counter import TokenCounter

__all__ = ["TokenCounter"]
