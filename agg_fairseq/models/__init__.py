"""fairseq models with the factorised output layer. Importing this package registers them and their architectures."""

from . import transformer_f2, transformer_lm_f2  # noqa: F401 — importing registers
