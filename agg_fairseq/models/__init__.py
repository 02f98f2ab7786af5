"""fairseq models with the factorized output layer. Importing this package registers them and their architectures."""

from . import transformer_f2  # noqa: F401 — importing registers
