"""Moved to `agg_fairseq.evaluation.generate_log`."""

from ..evaluation.generate_log import read_translations  # noqa: F401
