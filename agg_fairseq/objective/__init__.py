"""Training objectives in plain PyTorch: features, output embedding and targets in; the loss and
what to log out."""

from .agg import AggObjective
from .agps import AgpsObjective
from .base import TERMS, Average, MicroBatch, Objective, ObjectiveOutput
from .face import FaceObjective

__all__ = [
    "AggObjective", "AgpsObjective", "FaceObjective", "Objective", "MicroBatch", "ObjectiveOutput",
    "Average", "TERMS",
]  # fmt: skip
