"""fairseq models with other output layers. Importing this package registers them and their
architectures."""

from . import transformer_f2, transformer_unigram  # noqa: F401 — importing registers
from .architectures import register_transformers
from .from_checkpoint import build_model

__all__ = ["register_transformers", "build_model"]
