"""The gated objectives in other training frameworks; nothing here needs fairseq."""

from .log_unigram import load_pretrained
from .objective import GatedObjective, label_counts
