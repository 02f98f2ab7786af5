"""fairseq models with other output layers. Importing this package registers them and their architectures."""

from . import transformer_f2, transformer_unigram  # noqa: F401 — importing registers
