"""Everything that reproduce.sh runs, by the names that the command line takes."""

from __future__ import annotations

from . import agg, agps, cosreg, f2
from .ours import OURS

__all__ = ["EXPERIMENTS", "OURS"]

EXPERIMENTS = {**agg.EXPERIMENTS, **agps.EXPERIMENTS, **f2.EXPERIMENTS, **cosreg.EXPERIMENTS}
"""The tables and figures of the papers."""
