"""Optimizers in plain PyTorch. `fairseq_optimizers.py` registers them with fairseq."""

from .embedding_adam import EmbeddingAdam, appearance_rates

__all__ = ["EmbeddingAdam", "appearance_rates"]
