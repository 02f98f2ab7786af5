"""The objectives in other training frameworks; nothing here needs fairseq."""

from .label_counts import label_counts
from .log_unigram import load_pretrained

__all__ = ["label_counts", "load_pretrained"]
