"""Saved models, opened once and safely: checkpoints of fairseq-train, and models of Hugging Face transformers."""

from .fairseq_checkpoint import Checkpoint as Checkpoint
from .opening import EmbeddingSource as EmbeddingSource
from .opening import open_models as open_models
from .output_embedding import OutputEmbedding as OutputEmbedding
from .transformers_model import PretrainedModel as PretrainedModel
