"""Gates and output layers in Hugging Face transformers; nothing here needs fairseq."""

from .output_layers import add_log_unigram, label_counts, load_pretrained

__all__ = ["label_counts", "add_log_unigram", "load_pretrained"]
