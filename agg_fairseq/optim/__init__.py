"""Optimizers in plain PyTorch. `fairseq_plugin/optimizers.py` registers them with fairseq."""

from .embedding_adam import EmbeddingAdam

__all__ = ["EmbeddingAdam"]
