"""Optimizers in plain PyTorch. `fairseq_optimizers.py` registers them with fairseq."""

from .embedding_adam import EmbeddingAdam as EmbeddingAdam
from .embedding_adam import appearance_rates as appearance_rates
