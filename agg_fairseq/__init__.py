"""Objectives and an output layer against degenerate token embeddings, as a fairseq plug-in.

fairseq imports this folder through `--user-dir`, and then finds the criterions, models and optimizers registered. Where
fairseq has not been imported yet nothing is registered, and `functional`, `modules`, `optim` and `metrics` work on
their own; a program that wants them without `--user-dir` imports `agg_fairseq.criterions`, `agg_fairseq.models` and
`agg_fairseq.optim.fairseq_optimizers`.
"""

import sys

__version__ = "0.3.0"

if sys.modules.get("fairseq"):
    from . import criterions, models  # noqa: F401 — importing registers
    from .checkpoints.fairseq_checkpoint import allow_namespaces
    from .optim import fairseq_optimizers  # noqa: F401 — importing registers

    allow_namespaces()
