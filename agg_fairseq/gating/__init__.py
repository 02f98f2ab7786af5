"""Rules for the gates of a training, over its updates: targets in, gates out. No loss."""

from .agg import AggGating
from .agps import AgpsGating
from .base import Gating
from .face import FaceWeights
from .fixed import FixedGating
from .window import WindowGating

__all__ = ["Gating", "WindowGating", "AggGating", "AgpsGating", "FixedGating", "FaceWeights"]
