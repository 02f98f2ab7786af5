"""fairseq tasks. Importing this package registers them."""

from . import language_modeling_streams  # noqa: F401 — importing registers
