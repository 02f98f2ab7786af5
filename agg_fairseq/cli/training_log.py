"""Moved to `agg_fairseq.evaluation.training_log`."""

from ..evaluation.training_log import read_entries, read_log  # noqa: F401
