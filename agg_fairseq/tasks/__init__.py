"""fairseq tasks. Importing this package registers them."""

from ..awd_lstm import streams_task  # noqa: F401 — importing registers
