"""The objectives in other training frameworks; nothing here needs fairseq."""

from .label_counts import label_counts as label_counts
from .log_unigram import load_pretrained as load_pretrained
