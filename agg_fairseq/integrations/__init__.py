"""The gated objectives in other training frameworks; nothing here needs fairseq."""

from .objective import GatedObjective, label_counts

__all__ = ["GatedObjective", "label_counts"]
