"""Training objectives in plain PyTorch: features, output embedding and targets in; the loss and what to log out."""

from .agg import AggObjective as AggObjective
from .agps import AgpsObjective as AgpsObjective
from .likelihood import Measure as Measure
from .likelihood import MicroBatch as MicroBatch
from .likelihood import Objective as Objective
from .likelihood import ObjectiveOutput as ObjectiveOutput
