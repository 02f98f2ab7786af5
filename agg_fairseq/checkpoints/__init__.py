"""Saved models, opened once and safely: checkpoints of fairseq-train, and models of Hugging Face transformers."""

from .fairseq_checkpoint import Checkpoint
from .opening import EmbeddingSource, open_models
from .output_embedding import OutputEmbedding
from .transformers_model import PretrainedModel

__all__ = ["open_models", "Checkpoint", "PretrainedModel", "OutputEmbedding", "EmbeddingSource"]
