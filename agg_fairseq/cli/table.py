"""Moved to `agg_fairseq.evaluation.result`."""

from ..evaluation.result import format_table  # noqa: F401
