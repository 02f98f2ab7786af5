"""fairseq models: other output layers, and AWD-LSTM. Importing this package registers them and their architectures."""

from ..awd_lstm import language_model  # noqa: F401 — importing registers
from . import transformer_f2, transformer_unigram  # noqa: F401 — importing registers
from .architectures import register_transformers
from .from_checkpoint import build_model

__all__ = ["register_transformers", "build_model"]
