"""fairseq models: other output layers, and AWD-LSTM. Importing this package registers them and their architectures."""

from . import awd_lstm_lm, transformer_f2, transformer_unigram  # noqa: F401 — importing registers
