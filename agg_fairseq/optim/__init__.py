"""Optimizers in plain PyTorch. `fairseq_optimizers.py` registers them with fairseq."""

from .coupled_adam import CoupledAdam as CoupledAdam
