"""Objectives and an output layer against degenerate token embeddings, as a fairseq plug-in.

fairseq imports this folder through `--user-dir`, and then finds the criterions and models registered. Where fairseq
has not been imported yet nothing is registered, and `functional`, `modules` and `metrics` work on their own; a program
that wants them without `--user-dir` imports `agg_fairseq.criterions` and `agg_fairseq.models`.
"""

import sys

__version__ = "0.1.0"

if sys.modules.get("fairseq"):
    from . import criterions, models  # noqa: F401 — importing registers
    from .checkpoint import allow_namespaces

    allow_namespaces()
