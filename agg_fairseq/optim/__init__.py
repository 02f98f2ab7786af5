"""Optimizers in plain PyTorch. `fairseq_optimizers.py` registers them with fairseq."""

from .embedding_adam import EmbeddingAdam

__all__ = ["EmbeddingAdam"]
